"""What was measured as tables, and the goals."""

import math
from collections.abc import Sequence

from bench.quota.book import Standing
from bench.quota.work import MINUTE
from bench.table import Figure, Section, percentile, short

OF_AS_IS = 0.5
OF_BOUND = 1.1
KEPT = 0.9
LONG_RUN = 0.99
SHARE_PERCENT = 2.0


def drain_section(title: str, standings: Sequence[Standing], bound: float) -> Section:
    """A row for each way of draining. `bound` is seconds."""
    notes = [
        "fullest 60 s: the most tokens any model admitted in any minute, in units of its limit and one bucket. "
        "idle: share of the quotas that was left unused until the last prompt was taken up. "
        "waits kept: the share of callers that waited as told and were admitted on their next try; p50: of waits.",
    ]
    columns = ("", "minutes", "vs bound", "calls", "repeated", "idle", "fullest 60 s", "waits kept", "p50")
    best = ["the quotas' own bound", f"{bound / MINUTE:.1f}", "1.00", *[""] * 6]
    return Section(title, (), notes, columns, [best, *(_cells(each, bound) for each in standings)], dim=1)


def models_section(standing: Standing) -> Section:
    """How each model held its limits, and what it got."""
    notes = [
        "rate: tokens admitted after the first minute, in units of the limit. off by: of its share of all tokens, "
        "relative to what its weight makes due.",
    ]
    columns = (
        *("", "tokens/min", "slots", "weight", "calls", "at once", "fullest 60 s", "rate", "idle"),
        *("slots in use", "share", "off by"),
    )
    rows = [
        [
            part.model.name,
            f"{part.model.limit:,}",
            str(part.model.slots),
            str(part.model.weight),
            f"{part.calls:,}",
            str(part.at_once),
            f"{part.most:.3f}",
            f"{part.rate:.3f}",
            f"{part.idle:.1%}",
            f"{part.in_use:.1%}",
            f"{part.share:.1%}",
            f"{part.off:+.2%}",
        ]
        for part in standing.parts
    ]
    return Section(f"{standing.label}, model by model", (), notes, columns, rows)


def drain_goals(routed: Standing, as_is: Sequence[Standing], bound: float) -> list[Figure]:
    """Beside the quicker of the ways without a router."""
    fastest = min(each.book.drained for each in as_is)
    return [
        Figure("time to drain, of as-is (the quicker of both)", routed.book.drained / fastest, at_most=OF_AS_IS),
        Figure("time to drain, of the quotas' own bound", of_bound(routed.book.drained, bound), at_most=OF_BOUND),
        Figure("waits that came true", routed.book.kept(), at_least=KEPT),
        Figure("fullest 60 s of any model, of limit + bucket", routed.fullest, at_most=1.0),
    ]


def demand_goals(tokens: Standing, callers: Standing, slots: Standing) -> list[Figure]:
    """Where tokens are short, or callers, or slots, which are as the weights are."""
    demand, full = "demand above every limit", "slots the bottleneck"
    return [
        Figure(f"{demand}: least long-run rate, of the limit", tokens.slowest_rate, at_least=LONG_RUN),
        Figure(f"{demand}: waits that came true", tokens.book.kept(), at_least=KEPT),
        Figure(f"{demand}: fullest 60 s, of limit + bucket", tokens.fullest, at_most=1.0),
        Figure(f"{demand}: in flight above the cap", tokens.over_cap, at_most=0),
        _share_goal("callers the bottleneck", callers),
        _share_goal(full, slots),
        Figure(f"{full}: in flight above the cap", slots.over_cap, at_most=0),
        Figure(f"{full}: waits that came true, after a minute", slots.book.kept(MINUTE), at_least=KEPT),
        Figure(f"{full}: the same from the start", slots.book.kept()),
        Figure(f"{full}: waits that ended before the run did", 100 * slots.book.waited_out, "%"),
        Figure(f"{full}: wait told, median", percentile(slots.book.waits, 0.5) / 1000, "s"),
        Figure(f"{full}: least slots in use", 100 * min(part.in_use for part in slots.parts), "%"),
    ]


def of_bound(seconds: float, bound: float) -> float:
    """Infinite where the buckets alone, as they are at first, would take the whole backlog."""
    return seconds / bound if bound else math.inf


def _share_goal(what: str, standing: Standing) -> Figure:
    return Figure(f"{what}: worst share, off its weight by", 100 * standing.share_error, "%", at_most=SHARE_PERCENT)


def _cells(each: Standing, bound: float) -> list[str]:
    waits = each.book.waits
    return [
        each.label,
        f"{each.book.drained / MINUTE:.1f}",
        f"{of_bound(each.book.drained, bound):.2f}",
        f"{sum(part.calls for part in each.parts):,}",
        f"{each.book.repeated:,}",
        f"{each.idle:.1%}",
        f"{each.fullest:.2f}",
        f"{each.book.kept():.1%}" if waits else "",
        f"{short(percentile(waits, 0.5) / 1000)} s" if waits else "",
    ]
