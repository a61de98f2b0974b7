"""GPUs that answer as no server should: the job ends by name, its slot is free for the next, and slb goes on."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.process.dispatchers import MODEL, Dispatchers
from tests.support.waiting import patience

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
RESULT = b'{"status": "success", "result": 1}'
LENGTH = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n"
DEEP = b"[" * 10_000 + b"]" * 10_000
NESTED = b'{"status": "success", "result": ' + b"[" * 300 + b"]" * 300 + b"}"

GOOD = LENGTH % len(RESULT) + RESULT
ANSWERS = {
    "chunks that are none": (CHUNKED + b"zz\r\n" + RESULT, "upstream_protocol"),
    "a chunk without an end": (CHUNKED + b"ffffffffffffffff\r\n" + RESULT, "upstream_protocol"),
    "two lengths": (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n1", "upstream_protocol"),
    "a head of a mebibyte": (b"HTTP/1.1 200 OK\r\nX: " + b"x" * (1 << 20), "upstream_protocol"),
    "interim answers without end": (b"HTTP/1.1 102 Processing\r\n\r\n" * 10_000, "upstream_protocol"),
    "no HTTP": (b"\x16\x03\x01\x02\x00\x01\x00" * 100, "upstream_reset"),
    "half an answer": (LENGTH % 100 + RESULT, "upstream_reset"),
    "10,000 levels": (LENGTH % len(DEEP) + DEEP, "not JSON"),
    "a result that is nested too deep": (LENGTH % len(NESTED) + NESTED, "cannot be kept"),
}
DRIPS = LENGTH % 1_000_000
"""What a GPU begins with that sends a byte now and then."""


class RawGpu:
    """Sends what it is told, whatever is asked; `drips`: and a byte every 10 ms behind it, for ever."""

    def __init__(self) -> None:
        self.answer = GOOD
        self.drips = False
        self.endpoint = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await reader.readuntil(b"\r\n\r\n"):
                pieces = [self.answer] if len(self.answer) > 1_000 else [bytes([each]) for each in self.answer]
                for piece in pieces:
                    writer.write(piece)
                    await writer.drain()
                while self.drips:
                    writer.write(b" ")
                    await writer.drain()
                    await asyncio.sleep(0.01)
                if self.answer is not GOOD:
                    break
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # slb has heard enough
        finally:
            writer.close()


@asynccontextmanager
async def raw_gpu() -> AsyncIterator[RawGpu]:
    gpu = RawGpu()
    server = await asyncio.start_server(gpu.serve, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    gpu.endpoint = f"http://{host}:{port}/generate"
    async with server:
        yield gpu


@pytest.mark.parametrize("what", ANSWERS)
async def test_a_job_whose_gpu_answers_with(jobs: Dispatchers, what: str) -> None:
    answer, why = ANSWERS[what]
    one = await jobs.serve()
    async with raw_gpu() as gpu:
        await jobs.ask("PUT", f"{one.api}/admin/model-configs/{MODEL}", {"max_retries": 0})
        await jobs.ask("POST", f"{one.api}/admin/register", {"model": MODEL, "endpoint": gpu.endpoint})
        gpu.answer = answer
        await jobs.submit(one, "bad")
        (ended,) = await jobs.until_ended(one, ["bad"])
        assert ended["status"] == "dead_lettered"
        assert why in ended["error"]
        gpu.answer = GOOD
        await jobs.submit(one, "good")
        (ended,) = await jobs.until_ended(one, ["good"])
        assert (ended["status"], ended["result"]) == ("completed", 1)


async def test_an_answer_that_comes_byte_by_byte_without_end_has_the_time_of_a_call(jobs: Dispatchers) -> None:
    one = await jobs.serve()
    async with raw_gpu() as gpu:
        config = {"max_retries": 0, "max_processing_time": patience(1)}
        await jobs.ask("PUT", f"{one.api}/admin/model-configs/{MODEL}", config)
        await jobs.ask("POST", f"{one.api}/admin/register", {"model": MODEL, "endpoint": gpu.endpoint})
        gpu.answer, gpu.drips = DRIPS, True
        await jobs.submit(one, "slow")
        (ended,) = await jobs.until_ended(one, ["slow"])
        assert (ended["status"], "upstream_timeout" in ended["error"]) == ("dead_lettered", True)
        gpu.answer, gpu.drips = GOOD, False
        await jobs.submit(one, "good")
        (ended,) = await jobs.until_ended(one, ["good"])
        assert ended["status"] == "completed"
