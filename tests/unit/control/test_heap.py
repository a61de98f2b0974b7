"""The collector is kept away from tables, and memory that is free goes back to the system."""

import asyncio
import gc
import os
import platform
from pathlib import Path

import pytest

from slb.control import heap
from slb.control.heap import Heap, give_back

MUCH = 20_000_000
BLOCK = 4_000
"""Bytes: too many for Python's own allocator, too few for pages of their own."""


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries give back by themselves")
def test_glibc_gives_back_what_is_free_below_what_is_not() -> None:
    blocks = [bytearray(b"x" * BLOCK) for _ in range(MUCH // BLOCK)]
    kept = blocks.pop()
    blocks.clear()
    held = resident()
    give_back()
    assert held - resident() > MUCH / 2
    assert kept


async def test_everything_is_collected_once_and_what_is_large_is_frozen_again_and_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    happened: list[tuple[str, int]] = []
    made = 0
    monkeypatch.setattr(gc, "collect", lambda: happened.append(("collect", made)))
    monkeypatch.setattr(gc, "freeze", lambda: happened.append(("freeze", made)))
    monkeypatch.setattr(heap, "give_back", lambda: happened.append(("give back", made)))
    kept = Heap()
    for routes in (0, 10, 990, 500, 500, 3000):
        made += routes
        kept.grown(routes)
        await asyncio.sleep(0)
    start = [("collect", 0), ("freeze", 0), ("give back", 0)]
    later = [(what, at) for at in (1000, 2000, 5000) for what in ("freeze", "give back")]
    assert happened == start + later
