"""What was measured as tables, and the goals."""

import math
from collections.abc import Sequence

from bench.quota.held import SETTLING
from bench.quota.kills import SLACK_SECONDS, Killed
from bench.quota.models import MINUTE
from bench.quota.standing import Standing
from bench.table import Figure, RowsSection, percentile, short

OF_AS_IS = 0.5
OF_BOUND = 1.1
KEPT = 0.9
LONG_RUN = 0.99
SHARE_PERCENT = 2.0


def drain_section(title: str, standings: Sequence[Standing], bound: float) -> RowsSection:
    """A row for each way of draining. `bound` is seconds."""
    notes = [
        "fullest 60 s: the most tokens any model admitted in any minute, in units of its limit and one bucket. "
        "idle: share of the quotas that was left unused until the last prompt was taken up. "
        "waits kept: the share of callers who waited as told and were admitted on their next try; p50: of waits.",
    ]
    columns = ("", "minutes", "vs bound", "calls", "repeated", "idle", "fullest 60 s", "waits kept", "p50")
    best = ["the quotas' own bound", f"{bound / MINUTE:.1f}", "1.00", *[""] * 6]
    rows = [best, *(_cells(each, bound) for each in standings)]
    more = {"bound_seconds": bound, **_ways(*standings)}
    return RowsSection(title, [], notes, columns, rows, dim=1, more=more)


def share_section(standing: Standing) -> RowsSection:
    """What each model got, where only weights should decide."""
    columns = ("", "weight", "slots", "calls", "at once", "slots in use", "share", "by weight", "off by")
    rows = [
        [
            held.model.name,
            str(held.model.weight),
            str(held.model.slots),
            f"{held.calls:,}",
            str(held.at_once),
            f"{held.in_use:.1%}",
            f"{share.got:.2%}",
            f"{share.due:.2%}",
            f"{share.off:+.2%}",
        ]
        for held, share in zip(standing.held, standing.shares, strict=True)
    ]
    return RowsSection(f"{standing.label}, model by model", [], [], columns, rows, more=_ways(standing))


def held_section(standing: Standing) -> RowsSection:
    """How each model held its limits."""
    notes = [
        "rate: tokens admitted after the first minute, in units of the limit. as spent: with what calls came to."
    ]
    columns = ("", "tokens/min", "slots", "calls", "at once", "fullest 60 s", "as spent", "rate", "idle")
    rows = [
        [
            held.model.name,
            f"{held.model.limit:,}",
            str(held.model.slots),
            f"{held.calls:,}",
            str(held.at_once),
            f"{held.most:.3f}",
            f"{held.spent:.3f}",
            f"{held.rate:.3f}",
            f"{held.idle:.1%}",
        ]
        for held in standing.held
    ]
    return RowsSection(f"{standing.label}, model by model", [], notes, columns, rows, more=_ways(standing))


def _ways(*standings: Standing) -> dict[str, object]:
    return {"ways": {each.label: each.as_json() for each in standings}}


def drain_goals(routed: Standing, as_is: Sequence[Standing], bound: float) -> list[Figure]:
    """Beside the quicker of the ways it is done today."""
    fastest = min(each.drained for each in as_is)
    return [
        Figure("time to drain, of as-is (the quicker of both)", routed.drained / fastest, at_most=OF_AS_IS),
        Figure("time to drain, of the quotas' own bound", of_bound(routed.drained, bound), at_most=OF_BOUND),
        Figure("waits that came true", routed.book.tries.kept, at_least=KEPT),
        Figure("fullest 60 s of any model, of limit + bucket", routed.fullest, at_most=1.0),
    ]


def demand_goals(crowded: Standing) -> list[Figure]:
    """Where more is wanted than may go."""
    demand = "demand above every limit"
    return [
        Figure(f"{demand}: least long-run rate, of the limit", crowded.slowest_rate, at_least=LONG_RUN),
        Figure(f"{demand}: waits that came true", crowded.book.tries.kept, at_least=KEPT),
        Figure(f"{demand}: fullest 60 s, of limit + bucket", crowded.fullest, at_most=1.0),
        Figure(f"{demand}: in flight above the cap", crowded.over_cap, at_most=0),
    ]


def of_bound(seconds: float, bound: float) -> float:
    """Infinite where the buckets alone, as they are at first, would take the whole backlog."""
    return seconds / bound if bound else math.inf


def share_goal(few: Standing) -> Figure:
    """Where callers are few."""
    return _share_goal("callers the bottleneck", few)


def slot_goals(full: Standing) -> list[Figure]:
    """Where there are more callers than slots, and slots are as the weights are."""
    slots = "slots the bottleneck"
    kept = full.book.tries.kept_since(SETTLING / full.hurry)
    return [
        _share_goal(slots, full),
        Figure(f"{slots}: in flight above the cap", full.over_cap, at_most=0),
        Figure(f"{slots}: waits that came true, after a minute", kept, at_least=KEPT),
        Figure(f"{slots}: the same from the start", full.book.tries.kept),
        Figure(f"{slots}: waits that ended before the run did", 100 * full.book.waited_out, "%"),
        Figure(f"{slots}: wait told, median", full.hurry * percentile(full.book.waits, 0.5) / 1000, "s"),
        Figure(f"{slots}: least slots in use", 100 * min(held.in_use for held in full.held), "%"),
    ]


def kill_goals(killed: Killed) -> list[Figure]:
    """By the callers' own journals."""
    kill = "kill -9"
    ahead, slack = 1000 * killed.over, 1000 * SLACK_SECONDS
    return [
        Figure(f"{kill}: tasks of callers that were killed", killed.in_hand, at_least=1),
        Figure(f"{kill}: in flight above the cap", killed.standing.over_cap, at_most=0),
        Figure(f"{kill}: fullest 60 s, of limit + bucket", killed.standing.fullest, at_most=1.0),
        Figure(f"{kill}: worst interval, ahead of its refill by", ahead, "ms", at_most=slack),
        Figure(f"{kill}: tasks given to two callers", killed.twice, at_most=0),
        Figure(f"{kill}: not given back after a lease", killed.left, at_most=0),
    ]


def lateness(what: str, standing: Standing) -> Figure:
    """What the load side costs: callers that wake up late."""
    return Figure(f"{what}: callers later than told, p99", 1000 * percentile(standing.book.late, 0.99), "ms")


def _share_goal(what: str, standing: Standing) -> Figure:
    figure = f"{what}: worst share, off its weight by"
    return Figure(figure, 100 * standing.share_error, "%", at_most=SHARE_PERCENT)


def _cells(each: Standing, bound: float) -> list[str]:
    kept = f"{each.book.tries.kept:.1%}" if each.book.waits else ""
    wait = f"{short(percentile(each.book.waits, 0.5) / 1000 * each.hurry)} s" if each.book.waits else ""
    return [
        each.label,
        f"{each.drained / MINUTE:.1f}",
        f"{of_bound(each.drained, bound):.2f}",
        f"{sum(1 for _ in each.book.all()):,}",
        f"{each.book.repeated:,}",
        f"{each.idle:.1%}",
        f"{each.fullest:.2f}",
        kept,
        wait,
    ]
