"""A worker whose supervisor is gone before it serves: it ends, and makes no fuss."""

import asyncio
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

import orjson

from slb.listening import bound_socket
from slb.loading import load_settings
from slb.supervisor.workers import Job
from tests.support.waiting import soon


async def test_a_worker_whose_supervisor_dies_while_it_starts_ends_with_calm_lines(tmp_path: Path) -> None:
    settings = load_settings(
        {
            "redis_url": f"unix://{tmp_path}/missing.sock",
            "data_dir": tmp_path,
            "log_format": "json",
            "name": "box/0",
        },
        {},
    )
    with bound_socket("127.0.0.1:0", "listen") as bound:
        job = Job(
            settings=settings,
            data_fds=[bound.fileno()],
            api_path=tmp_path / "api.sock",
            api_addresses=[("127.0.0.1", 1)],
            worker="0",
        ).to_line()
        code, log = await worker(job, bound.fileno())
    assert code == 0
    assert [line["event"] for line in log] == ["redis_down", "parent_gone", "stopping"]
    assert log[-1]["instance"] == "box/0"


async def test_a_worker_without_a_job_ends_with_one_calm_line() -> None:
    code, log = await worker(b"")
    assert (code, [line["event"] for line in log]) == (0, ["parent_gone"])


async def worker(line: bytes, *data_fds: int) -> tuple[int | None, list[dict[str, object]]]:
    """Its exit code and its log, where its supervisor sends this and is gone."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "slb", "worker", stdin=PIPE, stdout=PIPE, stderr=PIPE, pass_fds=data_fds
    )
    assert process.stdin is not None
    assert process.stderr is not None
    process._transport.get_pipe_transport(1).close()  # type: ignore[attr-defined]
    process.stdin.write(line)
    process.stdin.close()
    try:
        lines = (await soon(process.stderr.read(), 30)).splitlines()
        return await process.wait(), [orjson.loads(line) for line in lines]
    finally:
        if process.returncode is None:
            process.kill()
