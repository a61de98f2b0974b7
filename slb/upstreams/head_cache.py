"""Each distinct head is parsed once: on kept-alive connections heads repeat to the byte. Only what the parser
accepted is cached."""

from collections.abc import Callable
from typing import Generic, TypeVar

Parsed = TypeVar("Parsed")

_SEEN = 4096


class HeadCache(dict[bytes, Parsed], Generic[Parsed]):
    """`cache[block]`: what `parse` returns or raises; at most about `limit` bytes. `get` and `in` see only the
    young generation.

    A head is kept from its second coming on: one that never comes again (a new traceparent in each) costs no
    memory. Two generations: the young one, the dict itself, becomes the old one when it is full, and what is asked
    for again is carried over. So a hit costs no call.
    """

    __slots__ = ("_half", "_old", "_parse", "_seen", "_size")

    def __init__(self, parse: Callable[[bytes], Parsed], limit: int = 1 << 20) -> None:
        super().__init__()
        self._parse = parse
        self._half = limit // 2
        self._old: dict[bytes, Parsed] = {}
        self._size = 0
        self._seen = [0] * _SEEN

    def __missing__(self, block: bytes) -> Parsed:
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
            self._old, self._size = dict(self), size
            self.clear()
        self[block] = parsed
