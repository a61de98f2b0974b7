"""Counts the steps a pattern takes, which no clock can: a backtracking matcher that walks the standard library's
parse tree in the order of CPython's engine (Modules/_sre/sre_lib.h) and counts every item it tries.

It leaves the engine's short cuts out (a literal that every match begins with, a literal behind a repeat): those
spare a part of each step and change nothing in how the steps grow. What it does not have raises
NotImplementedError.
"""

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from re import _compiler, _constants, _parser  # type: ignore[attr-defined]
from typing import Any, NamedTuple

Text = str | bytes
Span = tuple[int, int]
Go = Callable[[int], bool]
"""What comes behind: whether it matches from this position on."""
Item = Callable[[int, Go], bool]
"""One item of a pattern: matches from a position on, and everything behind it too."""

METHODS = frozenset({"match", "fullmatch", "search", "sub", "subn", "findall", "finditer", "split"})
UNITS = (_constants.LITERAL, _constants.NOT_LITERAL, _constants.ANY, _constants.IN)
REPEATS = (_constants.MAX_REPEAT, _constants.MIN_REPEAT, _constants.POSSESSIVE_REPEAT)
_EVERY_MATCH = METHODS - {"match", "fullmatch", "search"}
_NOTHING: Span = (-1, -1)
_DEPTH = 200_000


class TooManySteps(Exception):
    """More than the budget."""


class Outcome(NamedTuple):
    """`found`: of each match its span and those of its groups, as `re` has them."""

    steps: int
    found: list[tuple[Span, ...]]


def parsed(pattern: "re.Pattern[Any]") -> Any:
    """The parse tree that the engine's code is made of."""
    return _parser.parse(pattern.pattern, pattern.flags & ~re.DEBUG)


def count(pattern: "re.Pattern[Any]", method: str, text: Text, budget: int) -> Outcome:
    """What `pattern.method` does with `text`, and in how many steps. Raises TooManySteps."""
    if method not in METHODS:
        raise NotImplementedError(f"the method {method}")
    with _deep():
        return _matcher(pattern).run(method, text, budget)


@lru_cache(256)
def _matcher(pattern: "re.Pattern[Any]") -> "_Matcher":
    return _Matcher(pattern)


@contextmanager
def _deep() -> Iterator[None]:
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(_DEPTH)
    try:
        yield
    finally:
        sys.setrecursionlimit(before)


class _Matcher:
    def __init__(self, pattern: "re.Pattern[Any]") -> None:
        tree = parsed(pattern)
        self._text: Text = pattern.pattern[:0]
        self._end = self._budget = self._steps = 0
        self._state = tree.state
        self._spans = [_NOTHING] * tree.state.groups
        self._whole = self._sequence(tree, pattern.flags)

    def run(self, method: str, text: Text, budget: int) -> Outcome:
        self._text, self._end, self._budget, self._steps = text, len(text), budget, 0
        found: list[tuple[Span, ...]] = []
        start, advance = 0, False
        while start <= self._end and (spans := self._next(method, start, advance)) is not None:
            found.append(spans)
            start, advance = spans[0][1], spans[0][0] == spans[0][1]
            if method not in _EVERY_MATCH:
                break
        return Outcome(self._steps, found)

    def _next(self, method: str, start: int, advance: bool) -> tuple[Span, ...] | None:
        """`advance`: no empty match at `start`, for there has been one."""
        last = start if method in ("match", "fullmatch") else self._end
        for begin in range(start, last + 1):
            self._step()
            self._spans = [_NOTHING] * len(self._spans)
            taken = self._from(begin, method == "fullmatch", advance and begin == start)
            if taken is not None:
                return (begin, taken), *self._spans[1:]
        return None

    def _from(self, begin: int, whole: bool, advance: bool) -> int | None:
        ends: list[int] = []

        def accept(at: int) -> bool:
            if (whole and at != self._end) or (advance and at == begin):
                return False
            ends.append(at)
            return True

        return ends[0] if self._whole(begin, accept) else None

    def _step(self) -> None:
        self._steps += 1
        if self._steps > self._budget:
            raise TooManySteps

    # -- the parse tree, item by item

    def _sequence(self, items: Any, flags: int) -> Item:
        parts = [self._item(op, argument, flags) for op, argument in items]

        def go(at: int, behind: Go, index: int = 0) -> bool:
            if index == len(parts):
                return behind(at)
            return parts[index](at, lambda then: go(then, behind, index + 1))

        return parts[0] if len(parts) == 1 else go

    def _item(self, op: Any, argument: Any, flags: int) -> Item:
        if op in UNITS:
            return self._unit(self._takes(op, argument, flags))
        if op in REPEATS:
            return self._repeat(op, argument, flags)
        make = getattr(self, f"_{op.name.lower()}", None)
        if make is None:
            raise NotImplementedError(f"{op} in a pattern")
        made: Item = make(argument, flags)
        return made

    def _takes(self, op: Any, argument: Any, flags: int) -> Go:
        """Whether the one character at a position is taken: the engine itself is asked, once for each character."""
        one = _compiler.compile(_parser.SubPattern(self._state, [(op, argument)]), flags)
        known: dict[Text, bool] = {}

        def takes(at: int) -> bool:
            self._step()
            character = self._text[at : at + 1]
            if character not in known:
                known[character] = one.fullmatch(character) is not None
            return known[character]

        return takes

    def _unit(self, takes: Go) -> Item:
        return lambda at, behind: takes(at) and behind(at + 1)

    def _at(self, argument: Any, flags: int) -> Item:
        where = _parser.SubPattern(self._state, [(_constants.AT, argument)])
        here = _compiler.compile(where, flags)

        def go(at: int, behind: Go) -> bool:
            self._step()
            return here.match(self._text, at) is not None and behind(at)

        return go

    def _assert(self, argument: Any, flags: int, wanted: bool = True) -> Item:
        direction, items = argument
        body = self._sequence(items, flags)
        back = items.getwidth()[0] if direction < 0 else 0

        def go(at: int, behind: Go) -> bool:
            self._step()
            before = list(self._spans)
            there = at >= back and body(at - back, lambda then: direction > 0 or then == at)
            if there == wanted and behind(at):
                return True
            self._spans = before
            return False

        return go

    def _assert_not(self, argument: Any, flags: int) -> Item:
        return self._assert(argument, flags, wanted=False)

    def _branch(self, argument: Any, flags: int) -> Item:
        ways = [self._sequence(items, flags) for items in argument[1]]

        def go(at: int, behind: Go) -> bool:
            for way in ways:
                self._step()
                if way(at, behind):
                    return True
            return False

        return go

    def _subpattern(self, argument: Any, flags: int) -> Item:
        group, more, less, items = argument
        body = self._sequence(items, (flags | more) & ~less)
        return body if group is None else self._group(group, body)

    def _group(self, group: int, body: Item) -> Item:
        def go(at: int, behind: Go) -> bool:
            def close(then: int) -> bool:
                before, self._spans[group] = self._spans[group], (at, then)
                if behind(then):
                    return True
                self._spans[group] = before
                return False

            return body(at, close)

        return go

    def _groupref(self, group: int, flags: int) -> Item:
        if flags & re.IGNORECASE:
            raise NotImplementedError("a backreference whatever the case")

        def go(at: int, behind: Go) -> bool:
            begin, end = self._spans[group]
            found = self._text[begin:end]
            self._steps += len(found)
            self._step()
            return begin >= 0 and self._text[at : at + len(found)] == found and behind(at + len(found))

        return go

    def _failure(self, argument: Any, flags: int) -> Item:
        return lambda at, behind: False

    def _atomic_group(self, items: Any, flags: int) -> Item:
        body = self._sequence(items, flags)

        def go(at: int, behind: Go) -> bool:
            before = list(self._spans)
            end = self._first(body, at)
            if end is not None and behind(end):
                return True
            self._spans = before
            return False

        return go

    def _first(self, body: Item, at: int) -> int | None:
        """Where the first way through `body` ends; the others are not tried."""
        ends: list[int] = []

        def accept(end: int) -> bool:
            ends.append(end)
            return True

        return ends[0] if body(at, accept) else None

    # -- repeats

    def _repeat(self, op: Any, argument: Any, flags: int) -> Item:
        least, most, items = argument
        most = sys.maxsize if most is _constants.MAXREPEAT else most
        unit = _unit_in(items)
        if unit is not None:
            return self._of_units(op, least, most, self._takes(*unit, flags))
        body = self._sequence(items, flags)
        kinds = {_constants.MAX_REPEAT: self._greedy, _constants.MIN_REPEAT: self._lazy}
        return kinds.get(op, self._possessive)(least, most, body)

    def _of_units(self, op: Any, least: int, most: int, takes: Go) -> Item:
        def run(at: int, limit: int) -> int:
            end = at
            while end - at < limit and end < self._end and takes(end):
                end += 1
            return end

        def longest_first(at: int, behind: Go) -> bool:
            end = run(at, most)
            lowest = at + least if op is _constants.MAX_REPEAT else max(end, at + least)
            return any(self._tried(then, behind) for then in range(end, lowest - 1, -1))

        def shortest_first(at: int, behind: Go) -> bool:
            end = run(at, least)
            if end - at < least:
                return False
            while not self._tried(end, behind):
                if end - at >= most or end >= self._end or not takes(end):
                    return False
                end += 1
            return True

        return shortest_first if op is _constants.MIN_REPEAT else longest_first

    def _tried(self, at: int, behind: Go) -> bool:
        self._step()
        return behind(at)

    def _greedy(self, least: int, most: int, body: Item) -> Item:
        """A turn that takes nothing is the last one (`last_ptr` in the engine)."""

        def turn(at: int, behind: Go, done: int, last: int) -> bool:
            self._step()
            if done < least:
                return body(at, lambda then: turn(then, behind, done + 1, last))
            if done < most and at != last and body(at, lambda then: turn(then, behind, done + 1, at)):
                return True
            return behind(at)

        return lambda at, behind: turn(at, behind, 0, -1)

    def _lazy(self, least: int, most: int, body: Item) -> Item:
        def turn(at: int, behind: Go, done: int, last: int) -> bool:
            self._step()
            if done < least:
                return body(at, lambda then: turn(then, behind, done + 1, last))
            if behind(at):
                return True
            return done < most and at != last and body(at, lambda then: turn(then, behind, done + 1, at))

        return lambda at, behind: turn(at, behind, 0, -1)

    def _possessive(self, least: int, most: int, body: Item) -> Item:
        def go(at: int, behind: Go) -> bool:
            before = list(self._spans)
            end, done, last = at, 0, -1
            while done < most and (done < least or end != last):
                self._step()
                then = self._first(body, end)
                if then is None:
                    break
                end, last, done = then, end, done + 1
            if done >= least and behind(end):
                return True
            self._spans = before
            return False

        return go


def _unit_in(items: Any) -> tuple[Any, Any] | None:
    """The one unit that a repeat's body is, if that is all."""
    if len(items) != 1:
        return None
    op, argument = items[0]
    if op is _constants.SUBPATTERN:
        return _unit_in(argument[3]) if argument[0] is None and not argument[1] | argument[2] else None
    return (op, argument) if op in UNITS else None
