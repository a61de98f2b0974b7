"""CPU time and memory of a process with all its descendants, from /proc (Linux; see proc(5))."""

import os
from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
MIB = 1024 * 1024

# Indices into what follows "pid (name) "; proc(5) counts the fields of the whole line from 1.
PARENT, UTIME, CSTIME = 4 - 3, 14 - 3, 17 - 3
USED_FIELDS, STEAL = 3, 7  # of a core's line in /proc/stat: the first three; the eighth


@dataclass(frozen=True)
class ProcessStat:
    """One line of /proc/<pid>/stat. `ticks` is user + system time, that of reaped children included."""

    pid: int
    name: str
    state: str
    parent: int
    ticks: int


def parse_stat(line: str) -> ProcessStat:
    """Read /proc/<pid>/stat. A name may hold spaces and brackets, so it ends at the *last* bracket."""
    head, _, tail = line.rpartition(") ")
    pid, _, name = head.partition(" (")
    fields = tail.split()
    # With the children's times a worker that dies and is reaped moves its time to its parent: none is lost.
    ticks = sum(int(field) for field in fields[UTIME : CSTIME + 1])
    return ProcessStat(int(pid), name, fields[0], int(fields[PARENT]), ticks)


def parse_resident_mib(statm: str) -> float:
    """Read /proc/<pid>/statm: its second field is the resident size in pages."""
    return int(statm.split()[1]) * PAGE_BYTES / MIB


def memory_mib(pid: int, proc: Path = Path("/proc")) -> tuple[float, float]:
    """What one process has resident, and the most it ever had, in MiB."""
    return parse_status((proc / str(pid) / "status").read_text())


def parse_status(text: str) -> tuple[float, float]:
    """Read /proc/<pid>/status: VmRSS and VmHWM, which it gives in KiB."""
    fields = dict(line.split(":", 1) for line in text.splitlines())
    return int(fields["VmRSS"].split()[0]) / 1024, int(fields["VmHWM"].split()[0]) / 1024


class ProcessTree:
    """The processes under (and with) `root`, without those named in `not_counted` and what is under them."""

    def __init__(self, root: int, not_counted: Collection[str] = (), proc: Path = Path("/proc")) -> None:
        self._root = root
        self._not_counted = frozenset(not_counted)
        self._proc = proc

    def members(self) -> list[ProcessStat]:
        """The tree as it is now, root first; empty once the root is gone."""
        stats = read_all(self._proc)
        children: dict[int, list[ProcessStat]] = {}
        for stat in stats.values():
            children.setdefault(stat.parent, []).append(stat)
        found = [stats[self._root]] if self._root in stats else []
        for stat in found:  # grows while it is walked
            found += [child for child in children.get(stat.pid, []) if child.name not in self._not_counted]
        return found

    def cpu_seconds(self) -> float:
        """User and system time so far, in seconds."""
        return sum(stat.ticks for stat in self.members()) / TICKS_PER_SECOND

    def resident_mib(self) -> float:
        """Resident memory in MiB. A page that two of the processes share counts in both."""
        return sum(self._resident(stat.pid) for stat in self.members())

    def _resident(self, pid: int) -> float:
        try:
            return parse_resident_mib((self._proc / str(pid) / "statm").read_text())
        except (FileNotFoundError, ProcessLookupError):
            return 0.0


def read_all(proc: Path = Path("/proc")) -> dict[int, ProcessStat]:
    """Every process of the machine by pid; those that end while we read are left out."""
    stats = {}
    for entry in proc.iterdir():
        if not entry.name.isdigit():
            continue
        try:
            stat = parse_stat((entry / "stat").read_text())
        except (FileNotFoundError, ProcessLookupError):
            continue
        stats[stat.pid] = stat
    return stats


@dataclass(frozen=True)
class CoreTimes:
    """Seconds since the machine started: what processes used of one core, and what a hypervisor withheld."""

    used: float
    stolen: float

    def since(self, before: Self) -> Self:
        return replace(self, used=self.used - before.used, stolen=self.stolen - before.stolen)


def core_times(core: int, proc: Path = Path("/proc")) -> CoreTimes:
    """The times of one core now."""
    return parse_core_times((proc / "stat").read_text(), core)


def parse_core_times(text: str, core: int) -> CoreTimes:
    """Read /proc/stat. Used is user, nice and system; interrupts and idling are nobody's."""
    line = next(line for line in text.splitlines() if line.startswith(f"cpu{core} "))
    ticks = [int(field) for field in line.split()[1:]]
    return CoreTimes(sum(ticks[:USED_FIELDS]) / TICKS_PER_SECOND, ticks[STEAL] / TICKS_PER_SECOND)
