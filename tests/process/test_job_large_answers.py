"""A GPU's answer that is far too long: its job is dead-lettered with the reason, and none of it is kept."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from tests.process.dispatchers import MODEL, Dispatchers
from tests.support.waiting import within

_MIB = 1 << 20
_SIZE = 100 * _MIB
_MOST_GROWTH = 50 * _MIB
"""Bytes. A dispatcher that kept the answer would grow by at least `_SIZE`."""
_HEADS = {
    "length": b"Content-Length: %d\r\n" % _SIZE,
    "chunked": b"Transfer-Encoding: chunked\r\n",
    "close": b"Connection: close\r\n",
}


class LargeGpu:
    """Answers each call with 100 MB, framed so; or, with `polls`, only the question how a job goes. `sent`: bytes
    that it could send of them."""

    def __init__(self, framing: str, polls: bool) -> None:
        self._framing = framing
        self._polls = polls
        self.sent = 0

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                await self._answer(await reader.readuntil(b"\r\n\r\n"), reader, writer)
        writer.close()

    async def _answer(self, head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        length = re.search(rb"(?i)content-length: (\d+)", head)
        await reader.readexactly(int(length[1]) if length else 0)
        if self._polls and head.startswith(b"POST"):
            begun = b'{"status": "processing", "job_id": "remote"}'
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(begun), begun))
            return
        writer.write(b"HTTP/1.1 200 OK\r\n%b\r\n" % _HEADS[self._framing])
        piece = b"x" * _MIB
        if self._framing == "chunked":
            piece = b"%x\r\n%b\r\n" % (len(piece), piece)
        for _ in range(_SIZE // _MIB):
            writer.write(piece)
            await writer.drain()
            self.sent += _MIB
        writer.write(b"0\r\n\r\n" if self._framing == "chunked" else b"")
        if self._framing == "close":
            raise ConnectionError


@asynccontextmanager
async def serving(gpu: LargeGpu) -> AsyncIterator[str]:
    """Its URL."""
    server = await asyncio.start_server(gpu, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/generate"
    finally:
        server.close()


def peak(pid: int) -> int:
    """The most bytes of memory that a process has had until now."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1]) << 10


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read in /proc")
@pytest.mark.parametrize("polls", [False, True])
@pytest.mark.parametrize("framing", list(_HEADS))
async def test_its_job_is_dead_with_that_reason_and_the_dispatcher_does_not_grow_by_it(
    jobs: Dispatchers, framing: str, polls: bool
) -> None:
    one, there = await jobs.serve(), LargeGpu(framing, polls)
    config = {"model_type": "async", "poll_endpoint_template": "/status/{id}", "poll_interval": 0.05}
    await jobs.ask("PUT", f"{one.api}/admin/model-configs/{MODEL}", config if polls else {})
    async with serving(there) as endpoint:
        body = {"model": MODEL, "endpoint": endpoint, "slots": 2}
        await jobs.ask("POST", f"{one.api}/admin/register", body)
        before = peak(one.process.pid)
        ids = [f"job-{number}" for number in range(3)]
        for id_ in ids:
            await jobs.submit(one, id_)
        async with within(60):
            for id_ in ids:
                while (job := await jobs.job(one, id_))["status"] != "dead_lettered":
                    await asyncio.sleep(0.05)
                assert job["error"] == f"its answer is longer than result_limit, {_MIB} bytes"
                assert (job["attempts"], "result" in job) == (1, False)
    assert peak(one.process.pid) - before < _MOST_GROWTH
    assert there.sent < _SIZE  # of three answers: the rest was not read
    dead = await jobs.ask("GET", f"{one.api}/admin/dlq?model={MODEL}&error=result_limit")
    assert sorted(each["job_id"] for each in dead["jobs"]) == ids
