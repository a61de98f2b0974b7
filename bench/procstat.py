"""CPU time and memory of a process with all its descendants, of cores, and of the whole machine, from /proc (Linux;
see proc(5))."""

import os
import platform
import sys
import time
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
MIB = 1024 * 1024
PROC = Path("/proc")

# Indices into what follows "pid (name) "; proc(5) counts the fields of the whole line from 1.
PARENT, UTIME, CSTIME = 4 - 3, 14 - 3, 17 - 3
USED_FIELDS, STEAL = 3, 7  # of a core's line in /proc/stat: the first three; the eighth


class ProcessStat(NamedTuple):
    """One line of /proc/<pid>/stat. `ticks` is user + system time, that of reaped children included."""

    pid: int
    name: str
    parent: int
    ticks: int


def parse_stat(line: str) -> ProcessStat:
    """Read /proc/<pid>/stat. A name may hold spaces and brackets, so it ends at the *last* bracket."""
    head, _, tail = line.rpartition(") ")
    pid, _, name = head.partition(" (")
    fields = tail.split()
    # With the children's times a worker that dies and is reaped moves its time to its parent: none is lost.
    ticks = sum(int(field) for field in fields[UTIME : CSTIME + 1])
    return ProcessStat(int(pid), name, int(fields[PARENT]), ticks)


def _read(path: Path) -> str:
    """Empty once the process has ended."""
    try:
        return path.read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def memory_mib(pid: int, proc: Path = PROC) -> tuple[float, float]:
    """What one process has resident, and the most it ever had, in MiB; nothing once it has ended."""
    fields = dict(line.split(":", 1) for line in _read(proc / str(pid) / "status").splitlines())
    resident, peak = (int(fields.get(name, "0 kB").split()[0]) / 1024 for name in ("VmRSS", "VmHWM"))
    return resident, peak


class ProcessTree:
    """The processes under (and with) `root`, without those named in `not_counted` and what is under them."""

    def __init__(self, root: int, not_counted: Collection[str] = (), proc: Path = PROC) -> None:
        self._root, self._not_counted, self._proc = root, frozenset(not_counted), proc

    def members(self) -> list[ProcessStat]:
        """The tree as it is now, root first; empty once the root is gone."""
        lines = [_read(entry / "stat") for entry in self._proc.iterdir() if entry.name.isdigit()]
        stats = [parse_stat(line) for line in lines if line]
        found = [stat for stat in stats if stat.pid == self._root]
        for parent in found:  # grows while it is walked
            found += [each for each in stats if each.parent == parent.pid and each.name not in self._not_counted]
        return found

    def cpu_seconds(self) -> float:
        """User and system time so far, in seconds."""
        return sum(stat.ticks for stat in self.members()) / TICKS_PER_SECOND

    def resident_mib(self) -> float:
        """Resident memory in MiB. A page that two of the processes share counts in both."""
        return sum(memory_mib(stat.pid, self._proc)[0] for stat in self.members())


def core_times(cores: Collection[int], proc: Path = PROC) -> tuple[float, float]:
    """Seconds since the machine started: what processes used of these cores (user, nice and system), and what a
    hypervisor withheld."""
    names = {f"cpu{core}" for core in cores}
    lines = [line.split() for line in (proc / "stat").read_text().splitlines()]
    ticks = [[int(word) for word in words[1:]] for words in lines if words[0] in names]
    used, stolen = sum(sum(each[:USED_FIELDS]) for each in ticks), sum(each[STEAL] for each in ticks)
    return used / TICKS_PER_SECOND, stolen / TICKS_PER_SECOND


class Surroundings:
    """How busy the machine was from the making of this on."""

    def __init__(self) -> None:
        self._cores = sorted(os.sched_getaffinity(0))
        self._tree = ProcessTree(os.getpid())
        self._before = self._now()

    def _now(self) -> tuple[float, float, float, float]:
        return (time.monotonic(), self._tree.cpu_seconds(), *core_times(self._cores))

    def shares(self) -> dict[str, float]:
        """Parts of all cores' time: what this bench and its processes used, what others did, what a hypervisor
        withheld. Ask while the processes in question run, or after they were reaped."""
        passed, ours, used, stolen = (now - had for now, had in zip(self._now(), self._before, strict=True))
        spent = {"ours": ours, "others": max(0.0, used - ours), "stolen": stolen}
        return {name: seconds / (passed * len(self._cores)) for name, seconds in spent.items()}


def machine() -> dict[str, object]:
    """Processor, cores, kernel, and the Python that slb runs under."""
    lines = (PROC / "cpuinfo").read_text().splitlines()
    cpu = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")
    return {"cpu": cpu, "cores": os.cpu_count(), "kernel": platform.release(), "python": python()}


def python() -> str:
    """Version, when it was built, with what, and where it is: how it was built decides what slb costs."""
    built = platform.python_build()[1]
    return f"Python {platform.python_version()}, built {built} with {platform.python_compiler()}: {sys.base_prefix}"
