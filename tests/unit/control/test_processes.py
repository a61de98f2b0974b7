"""Of real processes: the kernel's word is what it is about."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from slb.control.processes import binding, has_ended, identity, is_taken_over
from tests.support.waiting import eventually

_PRINT = "from slb.control.processes import identity; print(identity(), flush=True); input()"
_END_ONE_THREAD = """
import ctypes, platform, threading, time
from slb.control.processes import identity
threading.Thread(target=time.sleep, args=(60,)).start()
print(identity(), flush=True)
exit_thread = 60 if platform.machine() == "x86_64" else 93
ctypes.CDLL(None).syscall(exit_thread, 0)
"""


@pytest.fixture
def other() -> Iterator[subprocess.Popen[str]]:
    """Another process; the first line it prints is its identity."""
    started = subprocess.Popen([sys.executable, "-c", _PRINT], stdin=-1, stdout=-1, text=True)
    with started:
        yield started
        started.kill()


def identity_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_a_process_that_runs_has_not_ended(other: subprocess.Popen[str]) -> None:
    assert not has_ended(identity_of(other))
    assert not has_ended(identity())


def test_a_process_that_was_killed_has_ended_though_it_was_not_waited_for(
    other: subprocess.Popen[str],
) -> None:
    process = identity_of(other)
    other.kill()
    os.waitid(os.P_PID, other.pid, os.WEXITED | os.WNOWAIT)
    assert has_ended(process)
    other.wait()
    assert has_ended(process)


def test_a_process_has_not_ended_while_one_of_its_threads_holds_its_connections_open() -> None:
    """As for a moment after a kill: its main thread is a zombie already."""
    with subprocess.Popen([sys.executable, "-c", _END_ONE_THREAD], stdin=-1, stdout=-1, text=True) as other:
        process = identity_of(other)
        stat = Path(f"/proc/{other.pid}/stat")
        asyncio.run(eventually(lambda: stat.read_text().rpartition(")")[2].split()[0] == "Z"))
        assert not has_ended(process)
        other.kill()
        os.waitid(os.P_PID, other.pid, os.WEXITED | os.WNOWAIT)
        assert has_ended(process)


def test_the_process_that_had_the_id_before_has_ended() -> None:
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


HERE = "127.0.0.1:8081"


def other_pids(process: str) -> str:
    """As that of a process in another container."""
    return f"boot/1 {process.partition(' ')[2]}"


def test_an_address_that_another_container_had_and_this_process_has_now_is_taken_over() -> None:
    assert is_taken_over(binding(HERE, other_pids(identity())), binding(HERE, identity()))


def test_processes_that_share_ids_are_judged_by_those_alone(other: "subprocess.Popen[str]") -> None:
    """Workers have their supervisor's address, and go on for a while when it has been killed."""
    supervisor = identity_of(other)
    assert supervisor == identity(other.pid)
    assert not is_taken_over(binding(HERE, supervisor), binding(HERE, identity()))


@pytest.mark.parametrize(
    "theirs",
    [
        "",
        "{place}",
        "{place} 127.0.0.1:8081",
        "{place} 127.0.0.1:8081 ",
        "{place} 127.0.0.1:8082 boot/1 7 7",
        "{place} 0.0.0.0:8081 boot/1 7 7",
        "boot/2 127.0.0.1:8081 boot/1 7 7",
    ],
)
def test_another_address_or_network_shows_nothing(theirs: str) -> None:
    ours = binding(HERE, identity())
    assert not is_taken_over(theirs.format(place=ours.split()[0]), ours)


def test_where_the_system_does_not_show_it_no_process_is_taken_over() -> None:
    assert binding(HERE, "") == ""
    assert not is_taken_over("", "")
    assert not is_taken_over(binding(HERE, other_pids(identity())), "")
