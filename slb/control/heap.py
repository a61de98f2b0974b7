"""The garbage collector, kept away from large tables; and memory that is free, given back.

A full collection walks every object: over the hundreds of thousands of a large table it holds the event loop for a
tenth of a second, to find nothing. What a table is made of is therefore frozen: collected around. What was needed
only to load the code and to make the table is free by then, but glibc keeps it: a tenth of the process."""

import asyncio
import ctypes
import gc
from collections.abc import Iterator
from contextlib import contextmanager

_WORTHWHILE = 1000  # routes


class Heap:
    """Keeps the collector away while a table is made, and then away from the table."""

    def __init__(self) -> None:
        self._grown = 0
        self._made = 0
        self._given_back_at = -1

    @contextmanager
    def building(self) -> Iterator[None]:
        """No collections meanwhile: what is built is not garbage."""
        was_enabled = gc.isenabled()
        gc.disable()
        try:
            yield
        finally:
            if was_enabled:
                gc.enable()

    def grown(self, routes: int) -> None:
        """Note how many routes were made. After enough of them all that is alive is frozen: not looked at any more,
        and still freed when nothing refers to it."""
        self._grown += routes
        self._made += routes
        if self._grown >= _WORTHWHILE:
            self._grown = 0
            gc.freeze()
        if self._given_back_at < 0:
            asyncio.get_running_loop().call_soon(_settle)
        elif self._made >= max(2 * self._given_back_at, _WORTHWHILE):
            asyncio.get_running_loop().call_soon(give_back)
        else:
            return
        self._given_back_at = self._made


def _settle() -> None:
    """After the first table, frozen by now if it is large: the last collection of everything."""
    gc.collect()
    gc.freeze()
    give_back()


def give_back() -> None:
    """Let the C library return what it holds without use, in a millisecond or two, where it can."""
    if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):
        trim(0)
