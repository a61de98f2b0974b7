"""What was measured as tables, and the goals."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rich.box import SIMPLE_HEAD
from rich.table import Table

from bench.figures.figure import Figure, Section, percentile, short
from bench.quota.held import SETTLING
from bench.quota.kills import SLACK_SECONDS, Killed
from bench.quota.models import MINUTE
from bench.quota.standing import Standing

OF_AS_IS = 0.5
OF_BOUND = 1.1
KEPT = 0.9
LONG_RUN = 0.99
SHARE_PERCENT = 2.0


@dataclass(frozen=True)
class DrainSection(Section):
    """A row for each way of draining. `bound` is seconds."""

    standings: Sequence[Standing] = ()
    bound: float = 0.0

    def table(self) -> Table:
        table = _table("", "minutes", "vs bound", "calls", "repeated", "idle", "fullest 60 s", "waits kept", "p50")
        table.add_row("the quotas' own bound", f"{self.bound / MINUTE:.1f}", "1.00", *[""] * 6, style="dim")
        for each in self.standings:
            table.add_row(each.label, *_cells(each, self.bound))
        return table

    def as_json(self) -> dict[str, object]:
        rows = {each.label: each.as_json() for each in self.standings}
        return {"title": self.title, "bound_seconds": self.bound, "ways": rows, "notes": list(self.notes)}


@dataclass(frozen=True, kw_only=True)
class StandingSection(Section):
    """One way, model by model."""

    standing: Standing

    def as_json(self) -> dict[str, object]:
        return {"title": self.title, "ways": {self.standing.label: self.standing.as_json()}}


class HeldSection(StandingSection):
    """How each held its limits."""

    def table(self) -> Table:
        table = _table("", "tokens/min", "slots", "calls", "at once", "fullest 60 s", "as spent", "rate", "idle")
        for each in self.standing.held:
            table.add_row(
                each.model.name,
                f"{each.model.limit:,}",
                str(each.model.slots),
                f"{each.calls:,}",
                str(each.at_once),
                f"{each.most:.3f}",
                f"{each.spent:.3f}",
                f"{each.rate:.3f}",
                f"{each.idle:.1%}",
            )
        return table


class ShareSection(StandingSection):
    """What each got, where only weights should decide."""

    def table(self) -> Table:
        table = _table("", "weight", "slots", "calls", "at once", "slots in use", "share", "by weight", "off by")
        for held, share in zip(self.standing.held, self.standing.shares, strict=True):
            table.add_row(
                held.model.name,
                str(held.model.weight),
                str(held.model.slots),
                f"{held.calls:,}",
                str(held.at_once),
                f"{held.in_use:.1%}",
                f"{share.got:.2%}",
                f"{share.due:.2%}",
                f"{share.off:+.2%}",
            )
        return table


def drain_section(title: str, standings: Sequence[Standing], bound: float) -> DrainSection:
    notes = [
        "fullest 60 s: the most tokens any model admitted in any minute, in units of its limit and one bucket. "
        "idle: share of the quotas that was left unused until the last prompt was taken up. "
        "waits kept: the share of callers who waited as told and were admitted on their next try; p50: of waits.",
    ]
    return DrainSection(title, [], notes, standings, bound)


def share_section(standing: Standing) -> ShareSection:
    return ShareSection(f"{standing.label}, model by model", [], standing=standing)


def held_section(standing: Standing) -> HeldSection:
    title = f"{standing.label}, model by model"
    notes = [
        "rate: tokens admitted after the first minute, in units of the limit. as spent: with what calls came to."
    ]
    return HeldSection(title, [], notes, standing=standing)


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
        f"{each.drained / MINUTE:.1f}",
        f"{of_bound(each.drained, bound):.2f}",
        f"{sum(1 for _ in each.book.all()):,}",
        f"{each.book.repeated:,}",
        f"{each.idle:.1%}",
        f"{each.fullest:.2f}",
        kept,
        wait,
    ]


def _table(*columns: str) -> Table:
    table = Table(box=SIMPLE_HEAD)
    table.pad_edge, table.show_edge = False, False
    for at, column in enumerate(columns):
        table.add_column(column, justify="right" if at else "left", no_wrap=True)
    return table
