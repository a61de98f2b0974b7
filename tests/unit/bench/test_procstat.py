"""The readers of /proc, on lines as the kernel writes them and on real processes."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.procstat import (
    MIB,
    PAGE_BYTES,
    TICKS_PER_SECOND,
    CoreTimes,
    ProcessTree,
    parse_core_times,
    parse_resident_mib,
    parse_stat,
)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def stat_line(pid: int, name: str, parent: int, times: str = "0 0 0 0") -> str:
    """A line of /proc/<pid>/stat with the fields that matter here; `times` is utime stime cutime cstime."""
    return f"{pid} ({name}) S {parent} {pid} {pid} 0 -1 4194560 11 22 33 44 {times} 20 0 1 0 555 1000 66\n"


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    """1 -> 10 (proxy) -> 11 (worker), 12 (valkey-server) -> 13; and 20, of nobody here."""
    processes = [
        (10, "proxy", 1, "100 50 0 0", 256),
        (11, "worker", 10, "200 100 3 4", 512),
        (12, "valkey-server", 10, "900 900 0 0", 4096),
        (13, "forked", 12, "900 900 0 0", 4096),
        (20, "stranger", 1, "700 700 0 0", 1024),
    ]
    for pid, name, parent, times, pages in processes:
        folder = tmp_path / str(pid)
        folder.mkdir()
        (folder / "stat").write_text(stat_line(pid, name, parent, times))
        (folder / "statm").write_text(f"99999 {pages} 10 1 0 50 0\n")
    (tmp_path / "meminfo").write_text("not a process")
    return tmp_path


def test_a_stat_line_gives_pid_name_parent_and_all_four_times() -> None:
    stat = parse_stat(stat_line(4242, "nginx", 17, "1 20 300 4000"))
    assert (stat.pid, stat.name, stat.state, stat.parent, stat.ticks) == (4242, "nginx", "S", 17, 4321)


@pytest.mark.parametrize("name", ["tmux: server", "a) S 9 (b", "((", "x) y"])
def test_a_name_with_spaces_and_brackets_does_not_shift_the_fields(name: str) -> None:
    stat = parse_stat(stat_line(7, name, 3, "5 6 0 0"))
    assert (stat.pid, stat.name, stat.parent, stat.ticks) == (7, name, 3, 11)


def test_resident_memory_is_the_second_field_in_pages() -> None:
    assert parse_resident_mib("5000 512 100 1 0 400 0") == 512 * PAGE_BYTES / MIB


def test_a_core_counts_user_nice_and_system_and_apart_from_them_what_was_stolen() -> None:
    text = "cpu  9 9 9 9 9 9 9 9 0 0\ncpu0 1 1 1 1 1 1 1 1 0 0\ncpu1 100 20 3 4000 500 60 7 80 0 0\nintr 5\n"
    assert parse_core_times(text, 1) == CoreTimes(123 / TICKS_PER_SECOND, 80 / TICKS_PER_SECOND)


def test_a_core_is_not_mistaken_for_one_whose_number_starts_alike() -> None:
    text = "cpu10 7 7 7 7 7 7 7 7\ncpu1 1 2 3 4 5 6 7 8\n"
    assert parse_core_times(text, 1) == CoreTimes(6 / TICKS_PER_SECOND, 8 / TICKS_PER_SECOND)


def test_what_passed_between_two_looks_is_the_difference() -> None:
    assert CoreTimes(5.0, 2.0).since(CoreTimes(1.0, 0.5)) == CoreTimes(4.0, 1.5)


def test_a_tree_holds_the_root_and_its_descendants_only(proc: Path) -> None:
    assert [stat.pid for stat in ProcessTree(10, proc=proc).members()] == [10, 11, 12, 13]


def test_what_is_not_counted_leaves_with_everything_under_it(proc: Path) -> None:
    tree = ProcessTree(10, {"valkey-server"}, proc)
    assert [stat.pid for stat in tree.members()] == [10, 11]
    assert tree.cpu_seconds() == (150 + 307) / TICKS_PER_SECOND
    assert tree.resident_mib() == (256 + 512) * PAGE_BYTES / MIB


def test_a_tree_whose_root_has_gone_is_empty(proc: Path) -> None:
    tree = ProcessTree(99, proc=proc)
    assert (tree.members(), tree.cpu_seconds(), tree.resident_mib()) == ([], 0, 0)


def test_a_process_that_ends_while_it_is_read_is_left_out(proc: Path) -> None:
    (proc / "11" / "stat").unlink()
    assert [stat.pid for stat in ProcessTree(10, {"valkey-server"}, proc).members()] == [10]


BURN_IN_A_CHILD = """
import os, time
pid = os.fork()
if pid == 0:
    while time.process_time() < 0.2:
        pass
    os._exit(0)
os.waitpid(pid, 0)
print("burnt", flush=True)
input()
"""


@pytest.fixture
def burner() -> Iterator[subprocess.Popen[str]]:
    argv = [sys.executable, "-c", BURN_IN_A_CHILD]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process
        process.kill()


def test_the_time_of_a_child_that_has_ended_is_not_lost(burner: subprocess.Popen[str]) -> None:
    assert burner.stdout is not None
    assert burner.stdout.readline() == "burnt\n"
    tree = ProcessTree(burner.pid)
    assert len(tree.members()) == 1
    assert tree.cpu_seconds() >= 0.19  # the child's 0.2 s, in whole ticks
    assert tree.resident_mib() > 1


def test_this_process_is_seen_with_its_parent() -> None:
    assert ProcessTree(os.getpid()).members()[0].parent == os.getppid()
