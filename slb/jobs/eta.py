"""When a job that waits will have ended, as far as that can be known: as if no other job came."""

import math
from collections.abc import Mapping, Sequence

from slb.job import Line, Waiting

_EXACT = 1e-6
"""Passes are sums of many fractions, and written with nine digits."""


def seconds_left(line: Line, weights: Mapping[str, int], slots: float) -> float | None:
    """Until a job with this place will have ended, where so many slots serve the model's jobs (math.inf: any
    number); None where that cannot be known."""
    if line.each is None or slots < 1:
        return None
    if slots == math.inf:
        return line.each
    free = _free_in(line, int(slots))
    rounds, place = divmod(ahead(line, weights), len(free))
    return free[place] + (rounds + 1) * line.each


def slots_for(capacity: int, taken: int, running: int) -> int:
    """Of `capacity` slots those that jobs of a model have or may have; `taken`: how many are held, by whomever."""
    return min(capacity, capacity - taken + running)


def ahead(line: Line, weights: Mapping[str, int]) -> int:
    """How many jobs begin before it, in the fair order of the classes."""
    own = next((each for each in line.classes if each.name == line.name), None)
    if own is None:  # it has begun meanwhile
        return 0
    turn = own.passed + line.position / weights.get(own.name, 1)
    return line.position + sum(
        _before(each, turn, weights.get(each.name, 1), own.name) for each in line.classes if each is not own
    )


def _before(waiting: Waiting, turn: float, weight: int, name: str) -> int:
    """How many of another class come before that turn of the class `name`."""
    passes = (turn - waiting.passed) * weight
    count = math.floor(passes + _EXACT) + 1 if waiting.name < name else math.ceil(passes - _EXACT)
    return min(max(count, 0), waiting.size)


def _free_in(line: Line, slots: int) -> Sequence[float]:
    """In how many seconds each slot is free for the first time, in that order."""
    assert line.each is not None
    each = line.each
    left = sorted(max(0.0, each - since) for since in line.since)
    if len(left) < line.running:  # of the others it is known that they began later
        first, more = (left[-1] if left else 0.0), line.running - len(left)
        left += [first + (each - first) * (number + 1) / (more + 1) for number in range(more)]
    if line.running >= slots:
        return left[line.running - slots :]  # the first that end leave no slot behind
    return [0.0] * (slots - line.running) + left
