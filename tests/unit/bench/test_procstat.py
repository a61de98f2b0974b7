"""The readers of /proc, on lines as the kernel writes them and on real processes."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.procstat import TICKS_PER_SECOND, ProcessTree, core_times, memory_mib, parse_stat

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def stat_line(pid: int, name: str, parent: int, times: str = "0 0 0 0") -> str:
    """A line of /proc/<pid>/stat with the fields that matter here; `times` is utime stime cutime cstime."""
    return f"{pid} ({name}) S {parent} {pid} {pid} 0 -1 4194560 11 22 33 44 {times} 20 0 1 0 555 1000 66\n"


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    """1 -> 10 (proxy) -> 11 (worker), 12 (valkey-server) -> 13; and 20, a stranger."""
    processes = [
        (10, "proxy", 1, "100 50 0 0", 256),
        (11, "worker", 10, "200 100 3 4", 512),
        (12, "valkey-server", 10, "900 900 0 0", 4096),
        (13, "forked", 12, "900 900 0 0", 4096),
        (20, "stranger", 1, "700 700 0 0", 1024),
    ]
    for pid, name, parent, times, mib in processes:
        folder = tmp_path / str(pid)
        folder.mkdir()
        (folder / "stat").write_text(stat_line(pid, name, parent, times))
        (folder / "status").write_text(f"Name:\t{name}\nVmHWM:\t{9 * mib << 10} kB\nVmRSS:\t{mib << 10} kB\n")
    (tmp_path / "meminfo").write_text("not a process")
    return tmp_path


def test_a_stat_line_gives_pid_name_parent_and_all_four_times() -> None:
    stat = parse_stat(stat_line(4242, "nginx", 17, "1 20 300 4000"))
    assert (stat.pid, stat.name, stat.parent, stat.ticks) == (4242, "nginx", 17, 4321)


@pytest.mark.parametrize("name", ["tmux: server", "a) S 9 (b", "((", "x) y"])
def test_a_name_with_spaces_and_brackets_does_not_shift_the_fields(name: str) -> None:
    stat = parse_stat(stat_line(7, name, 3, "5 6 0 0"))
    assert (stat.pid, stat.name, stat.parent, stat.ticks) == (7, name, 3, 11)


def test_resident_memory_and_its_peak_are_in_mib_and_nothing_of_one_that_has_ended(proc: Path) -> None:
    assert memory_mib(11, proc) == (512, 9 * 512)
    assert memory_mib(99, proc) == (0, 0)


def test_cores_count_user_nice_and_system_and_apart_from_them_what_was_stolen(tmp_path: Path) -> None:
    """The sum of all is no core, and core 1 is not mistaken for one whose number starts alike."""
    lines = (
        "cpu  9 9 9 9 9 9 9 9",
        "cpu0 1 1 1 1 1 1 1 1",
        "cpu10 7 7 7 7 7 7 7 7",
        "cpu1 100 20 3 4 5 6 7 80",
        "intr 5",
    )
    (tmp_path / "stat").write_text("\n".join(lines))
    assert core_times([1], tmp_path) == (123 / TICKS_PER_SECOND, 80 / TICKS_PER_SECOND)
    assert core_times([0, 1], tmp_path) == (126 / TICKS_PER_SECOND, 81 / TICKS_PER_SECOND)


def test_a_tree_holds_the_root_and_its_descendants_only(proc: Path) -> None:
    assert [stat.pid for stat in ProcessTree(10, proc=proc).members()] == [10, 11, 12, 13]


def test_what_is_not_counted_leaves_with_everything_under_it(proc: Path) -> None:
    tree = ProcessTree(10, {"valkey-server"}, proc)
    assert [stat.pid for stat in tree.members()] == [10, 11]
    assert tree.cpu_seconds() == (150 + 307) / TICKS_PER_SECOND
    assert tree.resident_mib() == 256 + 512


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
