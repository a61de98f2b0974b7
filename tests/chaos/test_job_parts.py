"""The processes of a chaos run of jobs."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

from slb.control.processes import has_ended, identity
from tests.support.waiting import eventually

_RUN = """
import sys
from pathlib import Path
from tests.chaos.jobs.parts import Part

part = Part("part", Path(sys.argv[1]), "sleep", "600")
part.kill()
part.start()
print(part.pid, flush=True)
sys.stdin.read()
"""


async def test_they_end_with_a_run_that_is_killed(tmp_path: Path) -> None:
    run = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", _RUN, str(tmp_path)), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert run.stdout is not None
    pid = int(await run.stdout.readline())
    part = identity(pid)
    try:
        run.kill()
        await run.wait()
        await eventually(lambda: has_ended(part))
    finally:
        if not has_ended(part):
            os.kill(pid, signal.SIGKILL)
