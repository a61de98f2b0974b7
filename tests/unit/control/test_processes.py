"""Of real processes: the kernel's word is what it is about."""

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from slb.control.processes import has_ended, identity

_TELL = "from slb.control.processes import identity; print(identity(), flush=True); input()"


@pytest.fixture
def other() -> Iterator[subprocess.Popen[str]]:
    """Another process; the first line it says is what it is."""
    started = subprocess.Popen([sys.executable, "-c", _TELL], stdin=-1, stdout=-1, text=True)
    with started:
        yield started
        started.kill()


def said(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_a_process_that_runs_has_not_ended(other: subprocess.Popen[str]) -> None:
    assert not has_ended(said(other))
    assert not has_ended(identity())


def test_a_process_that_was_killed_has_ended_though_nobody_has_waited_for_it(other: subprocess.Popen[str]) -> None:
    process = said(other)
    other.kill()
    os.waitid(os.P_PID, other.pid, os.WEXITED | os.WNOWAIT)
    assert has_ended(process)
    other.wait()
    assert has_ended(process)


def test_who_had_the_id_of_a_process_before_it_has_ended() -> None:
    place, pid, started = identity().split()
    assert has_ended(f"{place} {pid} {int(started) - 1}")


@pytest.mark.parametrize(
    "process",
    [
        "",
        "elsewhere/1 1 1",
        "{place} 0 1",
        "{place} -1 1",
        "{place} ² 1",
        "{place} 99999999999999999999 1",
        "{place}",
        "{place} " + "1" * 5000,
    ],
)
def test_what_cannot_be_known_from_here_has_not_ended(process: str) -> None:
    assert not has_ended(process.format(place=identity().split()[0]))
