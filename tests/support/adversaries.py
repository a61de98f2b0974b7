"""Inputs that a pattern would take longest over, made from its parse tree: what leads to one of its repeats, then a
long run of what the repeat takes (alone, and with what other repeats take too), then something that fails there."""

import re
from collections.abc import Iterator
from itertools import islice, product
from re import _compiler, _constants, _parser  # type: ignore[attr-defined]
from typing import Any, NamedTuple

from tests.support.steps import REPEATS, UNITS, TooManySteps, count, parsed

Text = Any
"""str or bytes, as the pattern is."""

PER_BYTE = 12
"""Steps for each byte of an input that no quadratic pattern stays below, at these lengths."""
_MOST_PER_BYTE = 1000
GROWTH = 2.5
"""How much more steps may be taken over twice as much."""
_SHORTEST, _LONGEST = 64, 256
_FOREIGN = "\u2028\u00e9\u017f\U0001f600"
_VARIANTS = 3
_MOST_ENDS = 5
_MOST_PIECES = 8
_MOST_SHARED = 2


class Adversary(NamedTuple):
    """`before`, then each of `runs` as often as is asked for, then `behind`."""

    before: Text
    runs: tuple[Text, ...]
    behind: Text

    def text(self, times: int) -> Text:
        """All of it."""
        joined = self.before[:0].join(run * times for run in self.runs)
        return self.before + joined + self.behind


def slow(pattern: "re.Pattern[Any]", method: str) -> str | None:
    """The input by which `pattern.method` grows by more than GROWTH where it is doubled; None: there is none."""
    makes = _Maker(pattern)
    for adversary in makes.adversaries():
        growth = _growth(pattern, method, adversary, makes.times)
        if growth > GROWTH:
            return f"{pattern.pattern!r}.{method}: {growth:.3g} times the steps for twice as much of {adversary}"
    return None


def _growth(pattern: "re.Pattern[Any]", method: str, adversary: Adversary, times: int) -> float:
    text = adversary.text(2 * times)
    try:
        steps = _steps(pattern, method, text)
        if steps <= PER_BYTE * len(text):
            return 1.0
        return max(steps / _steps(pattern, method, adversary.text(times)), 1.0)
    except TooManySteps:
        return float("inf")


def _steps(pattern: "re.Pattern[Any]", method: str, text: Text) -> int:
    return count(pattern, method, text, _MOST_PER_BYTE * len(text)).steps


class _Maker:
    """`times`: of a run, more than any bound in the pattern, as far as that is possible."""

    def __init__(self, pattern: "re.Pattern[Any]") -> None:
        self._flags = pattern.flags
        self._tree = parsed(pattern)
        self._nothing: Text = pattern.pattern[:0]
        self._units = [(each, self._taken(*each)) for each in _units(self._tree)]
        self._classes = self._representatives()
        self._busiest = sorted(self._classes, key=self._sharers, reverse=True)
        bounds = [most for most in _bounds(self._tree) if most < _LONGEST]
        self.times = min(_LONGEST, max([_SHORTEST, *(2 * most for most in bounds)]))

    def adversaries(self) -> list[Adversary]:
        """Each once."""
        found: dict[Adversary, None] = {}
        for before, body in self._repeats(self._tree, self._nothing):
            found.update(dict.fromkeys(self._against(before, body)))
        return list(found) or [Adversary(self._nothing, (each,), self._nothing) for each in self._classes]

    def _against(self, before: Text, body: Any) -> Iterator[Adversary]:
        taken = {each for unit in _units(body) for each in self._classes if each in self._taken(*unit)}
        bodies = [self._sample(body, variant) for variant in range(_VARIANTS)]
        alone = [*bodies, before, *(each for each in self._busiest if each in taken)]
        pieces = [*dict.fromkeys(piece for piece in alone if piece)][:_MOST_PIECES]
        ends = [self._nothing, *self._busiest[: -_MOST_ENDS - 1 : -1]]
        for piece, end in product(pieces, ends):
            yield Adversary(before, (piece,), end)
        for one, two, end in product(pieces, [*self._busiest[:_MOST_SHARED], *bodies[:2]], ends[:2]):
            if one != two and two:
                yield Adversary(before, (one + two,), end)
                yield Adversary(before, (one, two), end)

    def _repeats(self, items: Any, before: Text) -> Iterator[tuple[Text, Any]]:
        """What leads to each repeat, in its shortest form and in another; and the repeat's body. What is there so
        many times and no other leaves nothing to try."""
        for index, (op, argument) in enumerate(items):
            leads = {before + self._sample(items[:index], variant) for variant in (0, 1)}
            for lead in sorted(leads):
                if op in REPEATS and argument[0] != argument[1]:
                    yield lead, argument[2]
                for inner in _inside(op, argument):
                    yield from self._repeats(inner, lead)

    def _sample(self, items: Any, variant: int) -> Text:
        """Something that `items` take, were it not for what they look ahead for: other branches and characters by
        `variant`; 0 leaves out whatever may be left out."""
        text = self._nothing
        for op, argument in items:
            if op in UNITS:
                fitting = [each for each in self._classes if each in self._taken(op, argument)]
                text += fitting[variant % len(fitting)]
            elif op in REPEATS:
                times = max(argument[0], min(variant, 1))
                text += self._sample(argument[2], variant) * times
            elif op is _constants.BRANCH:
                ways = argument[1]
                text += self._sample(ways[variant % len(ways)], variant)
            elif op in (_constants.SUBPATTERN, _constants.ATOMIC_GROUP) or _is_behind(op, argument):
                text += self._sample(next(_inside(op, argument)), variant)
        return text

    def _taken(self, op: Any, argument: Any) -> frozenset[Text]:
        """The characters that one unit takes."""
        items = _parser.SubPattern(self._tree.state, [(op, argument)])
        unit = _compiler.compile(items, self._flags)
        return frozenset(each for each in _alphabet(self._nothing) if unit.fullmatch(each))

    def _sharers(self, character: Text) -> int:
        """How many places in the pattern take it."""
        return sum(character in chars for _, chars in self._units)

    def _representatives(self) -> list[Text]:
        """One character of each kind that the pattern distinguishes, printable where there is one."""
        kinds: dict[tuple[bool, ...], Text] = {}
        for each in _alphabet(self._nothing):
            kinds.setdefault(tuple(each in chars for _, chars in self._units), each)
        return list(kinds.values())


def _alphabet(nothing: Text) -> list[Text]:
    order = [*range(0x61, 0x7F), *range(0x20, 0x61), *range(0x20), *range(0x7F, 0x100)]
    if isinstance(nothing, bytes):
        return [bytes([each]) for each in order]
    return [*map(chr, order), *_FOREIGN]


def _inside(op: Any, argument: Any) -> Iterator[Any]:
    if op in REPEATS:
        yield argument[2]
    elif op is _constants.SUBPATTERN:
        yield argument[3]
    elif op is _constants.ATOMIC_GROUP:
        yield argument
    elif op is _constants.BRANCH:
        yield from argument[1]
    elif op in (_constants.ASSERT, _constants.ASSERT_NOT):
        yield argument[1]


def _is_behind(op: Any, argument: Any) -> bool:
    """Whether this has to stand before what follows."""
    return op is _constants.ASSERT and argument[0] < 0


def _units(items: Any) -> Iterator[tuple[Any, Any]]:
    for op, argument in items:
        if op in UNITS:
            yield op, argument
        for inner in _inside(op, argument):
            yield from _units(inner)


def _bounds(items: Any) -> Iterator[int]:
    for op, argument in items:
        if op in REPEATS and argument[1] is not _constants.MAXREPEAT:
            yield int(argument[1])
        for inner in _inside(op, argument):
            yield from _bounds(inner)


def texts_for(pattern: "re.Pattern[Any]", most: int) -> list[Text]:
    """Short ones of these inputs."""
    return [each.text(times) for each in islice(_Maker(pattern).adversaries(), most) for times in (0, 1, 3)]
