"""The garbage collector, kept away from the table; and memory that is free, given back.

A full collection walks every object: over the hundreds of thousands of a large table it holds the event loop
for tens of milliseconds, to find nothing. What a table is made of is therefore frozen: collected around.

What was needed only to load the code and to make the table is free by then, but glibc keeps it: a tenth of all
that a process has.
"""

import asyncio
import ctypes
import gc
from functools import cache

_WORTHWHILE = 1000
"""Upstreams; below that a full collection is short."""


class Freezer:
    """Freezes after the first table, and again each time the table has doubled."""

    def __init__(self) -> None:
        self._frozen = -1

    def table_grew(self, upstreams: int) -> None:
        """Tell how large the table is now."""
        if self._frozen < 0 or upstreams > max(2 * self._frozen, _WORTHWHILE):
            self._frozen = upstreams
            asyncio.get_running_loop().call_soon(_freeze)


def _freeze() -> None:
    gc.collect()
    gc.freeze()
    give_back()


def give_back() -> bool:
    """Let the C library return what it holds and nobody uses, in a millisecond or two; False where it cannot."""
    trim = getattr(_c_library(), "malloc_trim", None)
    return trim is not None and bool(trim(0))


@cache
def _c_library() -> ctypes.CDLL:
    return ctypes.CDLL(None)
