"""Each distinct head is parsed once: on kept-alive connections heads repeat to the byte.

What a strict parse made of the bytes depends on nothing else, so looking it up loses no strictness: only what the
parser accepted is ever in here.
"""

from collections.abc import Callable
from typing import Generic, TypeVar

Parsed = TypeVar("Parsed")

_SEEN = 4096


class HeadCache(Generic[Parsed]):
    """bytes -> what `parse` made of them; at most about `limit` bytes.

    A head is kept from its second coming on: one that never comes again (a traceparent in each) then costs no
    memory, and the memory it was parsed in stays warm. Two generations: the young one is filled, becomes the old
    one, and what is asked for again is carried over. That keeps what repeats without a list to reorder.
    """

    __slots__ = ("_half", "_old", "_parse", "_seen", "_size", "_young")

    def __init__(self, parse: Callable[[bytes], Parsed], limit: int = 1 << 20) -> None:
        self._parse = parse
        self._half = limit // 2
        self._young: dict[bytes, Parsed] = {}
        self._old: dict[bytes, Parsed] = {}
        self._size = 0
        self._seen = [0] * _SEEN

    def get(self, block: bytes) -> Parsed:
        """The parsed head; whatever `parse` raises."""
        found = self._young.get(block)
        if found is not None:
            return found
        found = self._old.get(block)
        if found is not None:
            self._keep(block, found)
            return found
        found = self._parse(block)
        mark = hash(block)
        if self._seen[mark % _SEEN] == mark:
            self._keep(block, found)
        else:
            self._seen[mark % _SEEN] = mark
        return found

    def _keep(self, block: bytes, parsed: Parsed) -> None:
        size = 2 * len(block) + 300
        self._size += size
        if self._size > self._half:
            self._old, self._young, self._size = self._young, {}, size
        self._young[block] = parsed
