"""`python -m bench` as a process."""

import asyncio
import sys
from pathlib import Path

from tests.support.waiting import soon

REPOSITORY = Path(__file__).parents[2]


async def bench(*words: str) -> tuple[int | None, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "bench",
        *words,
        cwd=REPOSITORY,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        out, _ = await soon(process.communicate(), 100)
    finally:
        if process.returncode is None:
            process.terminate()  # it ends what it has started
            await process.wait()
    return process.returncode, out.decode()
