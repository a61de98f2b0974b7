"""An instance that is killed, and the next one at its address: what the first held is free at the next one's first
beat, not when a lease ends, nor when the next one has been answered by Redis for a whole lease."""

import asyncio
import os
import shutil
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import orjson
import pytest

from bench.ports import free_port
from tests.process.commands import Commands
from tests.support.valkey import Valkey
from tests.support.waiting import eventually, within

HOLDERS = "slb:{/p}:holders"
OWN_PIDS = "unshare", "--pid", "--fork", "--kill-child", "--mount-proc"


def may_unshare() -> bool:
    if os.geteuid() != 0 or not shutil.which("unshare"):
        return False
    return subprocess.run([*OWN_PIDS, "true"], capture_output=True, check=False).returncode == 0


@asynccontextmanager
async def serving(argv: Sequence[str], log: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    """Killed at the end."""
    with log.open("ab") as stderr:
        process = await asyncio.create_subprocess_exec(*argv, stdout=asyncio.subprocess.PIPE, stderr=stderr)
    try:
        assert process.stdout is not None
        async with within(30):
            await process.stdout.readline()
        yield process
    finally:
        process.kill()
        await process.wait()


@pytest.mark.parametrize("long_ago", [False, True], ids=["just now", "long ago"])
@pytest.mark.parametrize(
    "prefix",
    [
        pytest.param((), id="on one host"),
        pytest.param(
            OWN_PIDS,
            id="in containers of one pod",
            marks=pytest.mark.skipif(not may_unshare(), reason="a namespace of process ids needs root"),
        ),
    ],
)
async def test_what_a_killed_instance_held_is_free_when_another_has_its_address(
    prefix: Sequence[str], long_ago: bool, slb: Commands, valkey: Valkey, tmp_path: Path
) -> None:
    traffic, api = (f"127.0.0.1:{free_port()}" for _ in range(2))
    argv = [*prefix, sys.executable, "-m", "slb", "serve", "--listen", traffic, "--api", api]
    argv += ["--redis", valkey.url, "--data-dir", str(tmp_path / "data")]
    _, slow = await slb.upstream("slow", "--service-time", "60s")
    first, second = tmp_path / "first.log", tmp_path / "second.log"
    async with serving(argv, first):
        await slb.until_status(f"http://{api}/readyz", 200)
        valkey.admin.sadd("slb_p", slow)
        valkey.admin.hset("slb:route:/p", "max_inflight", "1")
        await slb.until_status(f"http://{api}/routes/p", 200)
        await slb.until_json(f"http://{api}/routes/p", lambda route: route["settings"]["max_inflight"] == 1)
        asked = asyncio.create_task(slb.get(f"http://{traffic}/p"))
        await eventually(lambda: valkey.admin.zscore("slb:{/p}:inflight", slow) == 1, what="the slot is held")
        (dead,) = map(str, valkey.admin.zrange(HOLDERS, 0, -1))
        await eventually(lambda: valkey.admin.keys("slb:instance:*") != [], what="a first beat")
    await asked
    if long_ago:  # its lease and its life are over: no hash has it
        (instance,) = map(str, valkey.admin.zrange("slb:instances", 0, -1))
        valkey.admin.delete(f"slb:instance:{instance}")
        for key, ended in (HOLDERS, dead), ("slb:instances", instance):
            valkey.admin.zadd(key, {ended: int(time.time() * 1000) - 1000})
    async with serving(argv, second):
        await eventually(lambda: valkey.admin.zscore(HOLDERS, dead) is None, 30, what="reaped")
        events = [orjson.loads(line)["event"] for line in second.read_text().splitlines()]
        assert "instances_died" in events
        assert valkey.admin.zscore("slb:{/p}:inflight", slow) is None
