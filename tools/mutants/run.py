"""Runs pytest on a copy of the tree. Whatever its tests do, it ends, and so do the processes that they started."""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from tools.mutants.rooms import Stage

_LONGEST_TEST = 120
"""Seconds after which a test fails. One that hangs even then, in what it leaves open, ends its process after twice
that long."""
_LAST_STEPS = 30.0
"""Seconds for what an interrupted test still has to end."""
_PYTEST = ("-m", "pytest", "-x", "-q", "-p", "no:randomly", "--hypothesis-seed=0", "--no-header", "--tb=no")


def run(copy: Path, stage: Stage, seconds: float, records: Path | None = None) -> int | None:
    """How pytest ends; None where it does not in time. What its tests run is written to `records`."""
    processes = ("-n", str(stage.processes)) if stage.processes else ("-p", "no:xdist")
    environment = {**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
    recorder: tuple[str, ...] = ()
    if records is not None:
        environment["SLB_MUTANTS_RECORD"] = str(records / "record")
        recorder = ("-p", "tools.mutants.recorder")
    limits = (
        f"--timeout={_LONGEST_TEST}",
        *("-o", f"faulthandler_timeout={2 * _LONGEST_TEST}", "-o", "faulthandler_exit_on_timeout=true"),
    )
    running = subprocess.Popen(
        [sys.executable, *_PYTEST, *limits, *recorder, *processes, *stage.files],
        cwd=copy,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        return running.wait(seconds)
    except subprocess.TimeoutExpired:
        return None
    finally:
        if running.poll() is None:
            _interrupt(running)
        with suppress(ProcessLookupError):
            os.killpg(running.pid, signal.SIGKILL)
        running.wait()


def _interrupt(running: subprocess.Popen[bytes]) -> None:
    """Its tests may end what they have started."""
    running.send_signal(signal.SIGINT)
    with suppress(subprocess.TimeoutExpired):
        running.wait(_LAST_STEPS)
