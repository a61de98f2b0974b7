"""Three real routers where something is always short: tokens, callers, slots; and while some of all are killed."""

from pathlib import Path

from bench.machine import Shares
from bench.progress import Steps
from bench.quota.crowds import Setting, short_of_callers, short_of_slots, short_of_tokens, short_of_tokens_or_slots
from bench.quota.kills import killed
from bench.quota.real import demanded
from bench.quota.report import (
    demand_goals,
    held_section,
    kill_goals,
    lateness,
    share_goal,
    share_section,
    slot_goals,
)
from bench.table import Section

FEW_PART = 0.5
"""The run with few callers is so much shorter."""
FEW_FACTOR = 75.0
"""By this time is compressed where callers are few: nobody waits, so all that takes time is compressed. The model
with the least weight has a call in forty, and its share is up to one call behind at any time."""

SLOTS_PART, SLOTS_LONGER = 0.5, 1.5
"""Where slots are short time is compressed half as much, in a run so much longer: a slot frees every few
milliseconds then, and whoever is as late as that comes too late."""


def under_demand(home: Path, setting: Setting, factor: float, seconds: float, steps: Steps) -> list[Section]:
    """Each for about so many seconds of real time that is compressed by `factor`."""
    tokens = demanded(home / "tokens", short_of_tokens(setting), factor, seconds, "tokens short", steps)
    callers = demanded(
        home / "callers", short_of_callers(setting), FEW_FACTOR, FEW_PART * seconds, "callers short", steps
    )
    slower, longer = max(1.0, SLOTS_PART * factor), SLOTS_LONGER * seconds
    slots = demanded(home / "slots", short_of_slots(setting), slower, longer, "slots short", steps)
    kills = killed(home / "kills", short_of_tokens_or_slots(setting), factor, seconds, steps)
    figures = [
        *demand_goals(tokens.standing),
        lateness("demand above every limit", tokens.standing),
        share_goal(callers.standing),
        *slot_goals(slots.standing),
        lateness("slots the bottleneck", slots.standing),
        *kill_goals(kills),
    ]
    shares = {"tokens": tokens.shares, "callers": callers.shares, "slots": slots.shares, "kill -9": kills.shares}
    notes = [_told(what, meanwhile) for what, meanwhile in shares.items()]
    return [
        held_section(tokens.standing),
        share_section(callers.standing),
        share_section(slots.standing),
        held_section(kills.standing),
        Section(f"goals in real time, about {seconds:g} s each, up to {factor:g} times as fast", figures, notes),
    ]


def _told(what: str, shares: Shares) -> str:
    """Whether the load had the machine it needed."""
    return f"{what}: {shares.words()}"
