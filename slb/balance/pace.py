"""How long the first bytes of a route's answers take, and what a slow one says beside the others. The theory stands
in judge.py."""

import math
from collections import deque
from collections.abc import Collection
from typing import Final

from slb.balance.upstream import LiveUpstream

_SLOW: Final = 0.02
"""The share of the ranks that are slow."""
_SLOWER: Final = 4.0
_NEVER_SLOW: Final = 0.25
_COMPARED: Final = 256
"""Answers that one is compared with, at most."""
_LEAST_COMPARED: Final = 16
_FIRST_GUESSES: Final = 16
"""Answers after which the median is one."""
_FIRST_STEP, _STEP = 0.5, 0.1
_ALL_LOOKED_AT: Final = 200
_TURNS: Final = 11
_LOOKS_A_SECOND: Final = 20.0
_LONGEST_TURNS: Final = 20.0
"""At most so many times as many are skipped where answers are many."""
_HELD_LONGEST: Final = 5.0
STUCK_LEAST: Final = 30.0
STOOD_STILL: Final = 1.0
"""Seconds by which a timer is late where its process stood still, and has to read first what came meanwhile."""
_GAVE_UP_LEAST: Final = 10.0
_STUCK_TIMES: Final = 10.0


def rank_gain(longer: int, compared: int) -> float:
    """The logarithm of the factor that is won with an answer, where so many of the others' `compared` took as long
    or `longer`; 0 where it is none of the longest, which loses a half."""
    if compared < _LEAST_COMPARED:
        return 0.0
    ranks = max(1, int(_SLOW * (compared + 1)))
    if longer >= ranks:
        return 0.0
    harmonic = sum(1 / each for each in range(1, ranks + 1))
    left = (compared + 1 + ranks) / 2  # of compared + 1, when the other ranks have each a half
    return math.log(left / (harmonic * (longer + 1)))


class Pace:
    """How long the first bytes of a route's answers take, in seconds, from when the request was sent: `usual` is an
    estimate of the median of the healthy ones, `longest` of the 99th percentile; 0.0 before the first. An answer
    that takes no longer than `slow_after` is not slow.

    Each answer moves an estimate up or down by a step in proportion to its quantile, which leaves it where so many
    are below and so many above (Robbins and Monro 1951): two numbers for each route, whatever its traffic. Of many
    answers about one in six is looked at, and of over 120 a second about 20 a second: `skip` more are not. The last
    of those that are looked at are kept, for slow ones to be compared with.
    """

    __slots__ = ("_answers", "_last", "_since", "_times", "_until_now", "longest", "skip", "slow_after", "usual")

    def __init__(self) -> None:
        self.usual = 0.0
        self.longest = 0.0
        self.slow_after = math.inf
        self.skip = 0
        self._answers = 0
        self._times, self._until_now, self._since = 1.0, 0, math.inf
        self._last: deque[tuple[LiveUpstream, float]] = deque(maxlen=_COMPARED)

    def took(self, seconds: float, upstream: LiveUpstream, upstreams: int, now: float = 0.0) -> bool:
        """Note an answer, of which the first byte came `now`; whether it may be slow. `upstreams`: those of the
        route: where one of n is slow, the median of the others is the (1 - 1/n)/2 quantile of all."""
        is_slow = seconds > self.slow_after
        if self.skip:
            self.skip -= 1
            return is_slow
        self._last.append((upstream, seconds))
        self._answers = answers = self._answers + 1
        if answers == 1:
            self.usual = self.longest = seconds
            return False
        step = _STEP if answers > _FIRST_GUESSES else _FIRST_STEP
        below = (1 - 1 / upstreams) / 2 if upstreams > 1 else 0.5
        self.usual *= 1 + step * below if seconds > self.usual else 1 - step * (1 - below)
        if answers <= _FIRST_GUESSES:
            self.longest = max(self.longest, seconds)
            return is_slow
        self.longest = min(seconds, 1.5 * self.longest) if seconds > self.longest else 0.995 * self.longest
        self.slow_after = max(_NEVER_SLOW, _SLOWER * self.usual)
        if answers > _ALL_LOOKED_AT:
            self._skip_some(answers % _TURNS, now)
        return is_slow

    def _skip_some(self, turn: int, now: float) -> None:
        """In no step with the turns of upstreams."""
        if not turn:
            if (elapsed := now - self._since) > 0:
                due = elapsed * _LOOKS_A_SECOND * (_TURNS + 1) / 2
                self._times = min(max(1.0, self._until_now / due), _LONGEST_TURNS)
            self._until_now, self._since = 0, now
        self.skip = int(turn * self._times)
        self._until_now += self.skip + 1

    def gain(self, seconds: float, without: Collection[LiveUpstream]) -> float:
        """`rank_gain` of a first byte that took so long, beside the last answers of all upstreams but these."""
        if seconds <= self.slow_after:
            return 0.0
        others = [took for upstream, took in self._last if upstream not in without]
        return rank_gain(sum(took >= seconds for took in others), len(others))

    @property
    def holds_for(self) -> float:
        """Seconds for which a request that fails keeps its slot at least: as long as one that is answered. Else who
        fails at once would seem to have the most room."""
        return min(self.usual, _HELD_LONGEST)

    @property
    def stuck_after(self) -> float:
        """Seconds without a sign of life after which an upstream that owes an answer is stuck."""
        return max(STUCK_LEAST, _STUCK_TIMES * self.longest)

    @property
    def gives_up_after(self) -> float:
        """Seconds after which a client that leaves without a first byte has given up on the upstream."""
        return max(_GAVE_UP_LEAST, _STUCK_TIMES * self.longest)
