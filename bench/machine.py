"""The machine a figure belongs to, and how busy others kept it meanwhile."""

import os
import platform
import sys
import time
from pathlib import Path
from typing import NamedTuple

from bench.procstat import ProcessTree, core_times


def described() -> dict[str, object]:
    """Processor, cores, kernel, and the Python that slb runs under."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    cpu = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")
    return {"cpu": cpu, "cores": os.cpu_count(), "kernel": platform.release(), "python": python()}


def python() -> str:
    """Version, when it was built, with what, and where it is: how it was built decides what slb costs."""
    built = platform.python_build()[1]
    return f"Python {platform.python_version()}, built {built} with {platform.python_compiler()}: {sys.base_prefix}"


class Shares(NamedTuple):
    """Parts of all cores' time: what this bench and its processes used, what others did, what a hypervisor
    withheld."""

    ours: float
    others: float
    stolen: float

    def words(self) -> str:
        return (
            f"of the machine's time meanwhile: the bench and all it started {self.ours:.0%}, "
            f"other processes {self.others:.0%}, withheld by the hypervisor {self.stolen:.0%}"
        )


class Surroundings:
    """Watches from its making on."""

    def __init__(self) -> None:
        self._cores = sorted(os.sched_getaffinity(0))
        self._tree = ProcessTree(os.getpid())
        self._started = time.monotonic()
        self._ours = self._tree.cpu_seconds()
        self._before = core_times(self._cores)

    def shares(self) -> Shares:
        """Since this was made. Ask while the processes in question run, or after they were reaped."""
        available = (time.monotonic() - self._started) * len(self._cores)
        ours = self._tree.cpu_seconds() - self._ours
        used, stolen = (now - before for now, before in zip(core_times(self._cores), self._before, strict=True))
        return Shares(ours / available, max(0.0, used - ours) / available, stolen / available)
