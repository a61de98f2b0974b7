"""What callers of the quota router write down, and what must be true of it.

A caller writes a line before it asks for anything and one after it was answered, so that whatever kills it, what it
did without an answer is recorded as that.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any

import orjson


@dataclass(slots=True)
class Taken:
    """A task as its caller saw it. Seconds of the machine's monotonic clock: asked, admitted, reported
    as done, the report confirmed. `state` is what the router called it then."""

    model: str
    estimate: int
    asked: float
    admitted: float
    done: float = inf
    confirmed: float = inf
    state: str = ""


@dataclass(frozen=True, slots=True)
class Promise:
    """What a model was set to: tokens a second, its bucket, its slots."""

    rate: float
    burst: float
    slots: int


@dataclass(slots=True)
class History:
    """`tasks` by their id; `waits`: how often a wait was answered, by reason."""

    tasks: dict[str, Taken]
    waits: dict[str, int]
    twice: list[str]
    """Tasks that two asks were answered with."""
    returned: dict[str, list[tuple[float, int]]] = field(default_factory=dict)
    """By model, what the router reports as taken back of abandoned tasks: when, and how many tokens."""

    @classmethod
    def read(cls, files: Iterable[Path]) -> "History":
        history = cls({}, {}, [])
        for file in files:
            for line in file.read_bytes().splitlines():
                history._replay(orjson.loads(line))
        return history

    def _replay(self, line: Mapping[str, Any]) -> None:
        match line["event"]:
            case "admitted":
                if line["task"] in self.tasks:
                    self.twice.append(line["task"])
                taken = Taken(line["model"], line["estimate"], line["asked"], line["admitted"])
                self.tasks[line["task"]] = taken
            case "done":
                self.tasks[line["task"]].done = line["at"]
            case "confirmed":
                self.tasks[line["task"]].confirmed = line["at"]
                self.tasks[line["task"]].state = line["state"]
            case "wait":
                self.waits[line["reason"]] = self.waits.get(line["reason"], 0) + 1

    def of(self, model: str) -> list[Taken]:
        return [taken for taken in self.tasks.values() if taken.model == model]


def faults(history: History, promises: Mapping[str, Promise], lease: float, slack: float) -> list[str]:
    """What went wrong. `lease`: seconds a task holds its slot without any sign of life. `slack`: by so many seconds
    a decision may be early, and a second of another clock be shorter."""
    found = [f"task {task} was given twice" for task in history.twice]
    for model, promise in promises.items():
        taken = history.of(model)
        back = history.returned.get(model, [])
        over = overdrawn(taken, promise.rate, promise.burst, back)
        if over > promise.rate * slack:
            found.append(f"{model}: some interval had {over:.0f} tokens more than its bucket and its refill")
        most = most_held(taken, lease - slack)
        if most > promise.slots:
            found.append(f"{model}: {most} at once of {promise.slots}")
    return found


def overdrawn(
    taken: Sequence[Taken], rate: float, burst: float, returned: Sequence[tuple[float, int]] = ()
) -> float:
    """By how many tokens the worst interval, of whatever length, had more than one bucket and what was refilled
    meanwhile: at most 0 where none had. `rate` is tokens a second. `returned`: when, and how many tokens were given
    back; an interval may have those besides.

    Counted in an interval is only what was certainly decided within it (asked and admitted in it), so that no doubt
    about the moment of a decision can make a fault.
    """
    begins = sorted({each.asked for each in taken})
    drawn = [0.0] * len(begins)
    backs = sorted(returned, reverse=True)
    worst = -inf
    for each in sorted(taken, key=lambda each: each.admitted):
        while backs and backs[-1][0] <= each.admitted:
            at, tokens = backs.pop()
            for place in range(bisect_right(begins, at)):
                drawn[place] -= tokens
        inside = bisect_right(begins, each.asked)
        for place in range(inside):
            drawn[place] += each.estimate
        most = max(drawn[place] + rate * begins[place] for place in range(inside))
        worst = max(worst, most - rate * each.admitted - burst)
    return worst


def most_held(taken: Sequence[Taken], lease: float) -> int:
    """The most tasks that certainly held a slot at the same time: each from when its caller was admitted until it
    reported that it was done; one whose caller died, until its lease can have lapsed."""
    changes = []
    for each in taken:
        ends = each.done if each.done < inf else each.asked + lease
        if ends > each.admitted:
            changes += [(each.admitted, 1), (ends, -1)]
    most = now = 0
    for _, change in sorted(changes):
        now += change
        most = max(most, now)
    return most


def spent(taken: Iterable[Taken]) -> tuple[int, int]:
    """At least, and at most, the tokens that are spent for good: those of tasks that were completed. What was
    abandoned is given back; what was reported without an answer is unknown."""
    least = sum(each.estimate for each in taken if each.state == "completed")
    unconfirmed = sum(each.estimate for each in taken if each.done < inf and each.confirmed == inf)
    return least, least + unconfirmed
