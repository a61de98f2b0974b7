"""Memory that is free goes back to the system."""

import os
import platform
from pathlib import Path

import pytest

from slb.memory import give_back

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
