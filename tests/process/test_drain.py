"""An instance that is stopped: no request that has come is refused, nothing that runs is broken off."""

import asyncio
import os
import re
import signal
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from websockets.asyncio.client import connect

from slb.names import join_member
from tests.process.commands import Commands, Serving
from tests.process.serving import events, in_flight, until_all_ready, until_draining, with_upstream
from tests.support.valkey import Valkey
from tests.support.waiting import eventually, soon, until_found

GET = b"GET /p HTTP/1.1\r\nHost: h\r\n\r\n"


@pytest.fixture
async def serving(slb: Commands, valkey: Valkey) -> Serving:
    return await slb.until_ready(await slb.serve(redis=valkey.url))


def address(serving: Serving) -> tuple[str, int]:
    parts = urlsplit(serving.url)
    assert parts.hostname is not None
    assert parts.port is not None
    return parts.hostname, parts.port


async def test_a_request_that_was_on_its_way_is_answered_as_the_last_of_its_connection(
    slb: Commands, serving: Serving
) -> None:
    await with_upstream(slb, serving)
    reader, writer = await asyncio.open_connection(*address(serving))
    os.kill(serving.process.pid, signal.SIGTERM)
    await until_draining(slb, serving)
    writer.write(GET)
    reply = await soon(reader.read())
    assert reply.startswith(b"HTTP/1.1 200 ")
    assert b"connection: close\r\n" in reply.lower()
    writer.close()
    assert await serving.process.ended() == 0


async def test_an_idle_connection_does_not_hold_it_for_long(slb: Commands, serving: Serving) -> None:
    reader, writer = await asyncio.open_connection(*address(serving))
    os.kill(serving.process.pid, signal.SIGTERM)
    assert await soon(reader.read()) == b""
    writer.close()
    assert await serving.process.ended() == 0


async def test_with_a_drain_delay_new_connections_are_served_while_readyz_answers_503(
    slb: Commands, valkey: Valkey
) -> None:
    serving = await slb.until_ready(await slb.serve(redis=valkey.url, env={"SLB_DRAIN_DELAY": "2s"}))
    await with_upstream(slb, serving)
    os.kill(serving.process.pid, signal.SIGTERM)
    await until_draining(slb, serving)
    assert (await slb.get(f"{serving.url}/_slb/readyz"))[0] == 503
    assert (await slb.get(f"{serving.url}/p"))[0] == 200
    assert await serving.process.ended() == 0


@pytest.mark.parametrize("workers", [1, 2])
async def test_no_connection_that_was_made_is_broken(slb: Commands, valkey: Valkey, workers: int) -> None:
    """A client without a break: each connection is made anew, and once it is made its request is answered."""
    _, member = await slb.upstream("a")
    valkey.admin.sadd("slb_p", member)
    serving = await slb.until_ready(await slb.serve("--workers", str(workers), redis=valkey.url))
    await until_all_ready(slb, serving)
    results: list[bytes] = []
    clients = [asyncio.create_task(made_anew(*address(serving), results)) for _ in range(8)]
    await eventually(lambda: len(results) > len(clients))
    os.kill(serving.process.pid, signal.SIGTERM)
    assert await serving.process.ended() == 0
    await asyncio.gather(*clients)
    assert [result for result in results if not result.startswith(b"HTTP/1.1 200 ")] == []


async def made_anew(host: str, port: int, answers: list[bytes]) -> None:
    """Add to `answers` until no connection can be made; b"" where one was made and then broke."""
    while True:
        try:
            reader, writer = await asyncio.open_connection(host, port)
        except OSError:
            return
        try:
            writer.write(GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
            answers.append(await reader.read())
        except OSError:
            answers.append(b"")
        writer.close()


async def test_streams_and_websockets_go_on_until_they_end(slb: Commands, serving: Serving, origin: str) -> None:
    await slb.run("register", "/p", origin, "--url", serving.api)
    reader, writer = await asyncio.open_connection(*address(serving))
    writer.write(GET.replace(b"/p", b"/p/stream"))
    async with connect(f"{serving.url.replace('http', 'ws')}/p/echo") as socket:
        await socket.send("before")
        assert await socket.recv() == "before"
        await reader.readuntil(b"data: 0")
        os.kill(serving.process.pid, signal.SIGTERM)
        await until_draining(slb, serving)
        await slb.get(f"http://{origin}/p/go-on")
        await soon(reader.readuntil(b"data: 1"))
        await socket.send("after")
        assert await socket.recv() == "after"
        assert await soon(reader.read()) != b""
    writer.close()
    assert await serving.process.ended() == 0


@pytest.mark.parametrize("workers", [1, 2])
async def test_an_upload_goes_on_until_it_ends_and_is_answered(
    slb: Commands, valkey: Valkey, origin: str, workers: int
) -> None:
    valkey.admin.sadd("slb_p", origin)
    serving = await slb.until_ready(await slb.serve("--workers", str(workers), redis=valkey.url))
    await until_all_ready(slb, serving)
    reader, writer = await asyncio.open_connection(*address(serving))
    writer.write(b"POST /p/upload HTTP/1.1\r\nHost: h\r\nContent-Length: 100000\r\n\r\n" + bytes(30_000))
    await in_flight(slb, serving, 1)
    os.kill(serving.process.pid, signal.SIGTERM)
    await until_draining(slb, serving)
    writer.write(bytes(70_000))
    reply = await soon(reader.read())
    assert reply.startswith(b"HTTP/1.1 200 ")
    assert reply.endswith(b"\r\n\r\n100000 bytes")
    assert b"connection: close\r\n" in reply.lower()
    writer.close()
    assert await serving.process.ended() == 0


async def waits(slb: Commands, serving: Serving) -> bool:
    _, text = await slb.get(f"{serving.api}/metrics")
    return any(line.startswith("slb_queue_depth{") and line.endswith(" 1.0") for line in text.splitlines())


async def test_a_second_signal_cuts_requests_before_it_gives_their_slots_to_others(
    slb: Commands, valkey: Valkey
) -> None:
    running, most = 0, 0
    came: asyncio.Queue[None] = asyncio.Queue()

    async def run_until_cut(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal running, most
        await reader.readuntil(b"\r\n\r\n")
        running += 1
        most = max(most, running)
        came.put_nowait(None)
        await reader.read()
        running -= 1
        writer.close()

    async with await asyncio.start_server(run_until_cut, "127.0.0.1", 0) as upstream:
        valkey.admin.hset(
            "slb:route:/p", mapping={"policy": "least_inflight", "max_inflight": "1", "when_full": "queue"}
        )
        valkey.admin.sadd("slb_p", join_member("http", *upstream.sockets[0].getsockname()))
        one, other = [await slb.until_ready(await slb.serve(redis=valkey.url)) for _ in range(2)]
        (_, first), (_, second) = [await asyncio.open_connection(*address(each)) for each in (one, other)]
        first.write(GET)
        await soon(came.get())
        second.write(GET)
        await until_found(lambda: waits(slb, other), what="queued")
        os.kill(one.process.pid, signal.SIGTERM)
        await until_draining(slb, one)
        os.kill(one.process.pid, signal.SIGTERM)
        await soon(came.get())
        assert most == 1
        for writer in (first, second):
            writer.close()
        await one.process.ended()


def status_of(pid: int, field: str) -> str:
    """What Linux shows of a process."""
    found = re.search(rf"^{field}:\s*(\w+)", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    assert found is not None
    return found[1]


def pending(pid: int) -> int:
    """How many signals a process has been sent and has not handled; equal ones are one."""
    return int(status_of(pid, "ShdPnd"), 16).bit_count()


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="only Linux shows which signals are pending")
async def test_a_second_signal_reaches_workers_that_have_not_handled_the_first(
    slb: Commands, valkey: Valkey
) -> None:
    serving = await slb.until_ready(await slb.serve("--workers", "2", redis=valkey.url))
    await with_upstream(slb, serving)
    slow = asyncio.create_task(slb.get(f"{serving.url}/p", **{"X-Service-Time": "60s"}))
    await in_flight(slb, serving, 1)
    workers = await until_all_ready(slb, serving)
    for pid in workers:
        os.kill(pid, signal.SIGSTOP)
    await eventually(lambda: all(status_of(pid, "State") == "T" for pid in workers), what="all are stopped")
    for count in (1, 2):
        os.kill(serving.process.pid, signal.SIGTERM)
        await eventually(lambda count=count: all(pending(pid) == count for pid in workers))  # type: ignore[misc]
    for pid in workers:
        os.kill(pid, signal.SIGCONT)
    assert await serving.process.ended() == 1
    assert (await slow)[0] == 0
    assert [(line["requests"], line["why"]) for line in events(serving, "requests_cut_off")] == [(1, "told_twice")]
