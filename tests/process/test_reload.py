"""Settings that change while it runs: all hold or none, and nothing that runs notices."""

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from websockets.asyncio.client import connect

from tests.process.commands import Commands, Serving
from tests.support.valkey import Valkey
from tests.support.waiting import eventually, soon


@pytest.fixture
def config(slb: Commands) -> Path:
    file = slb.directory / "slb.toml"
    write(file, "[defaults]\nretries = 1\n")
    return file


@pytest.fixture(params=[1, 2], ids=["one process", "two workers"])
async def serving(slb: Commands, valkey: Valkey, config: Path, request: pytest.FixtureRequest) -> Serving:
    """With the route /p, whose upstream does not listen."""
    serving = await slb.serve("--config", str(config), "--workers", str(request.param), redis=valkey.url)
    await slb.until_ready(serving)
    valkey.admin.sadd("slb_p", "127.0.0.1:1")
    await slb.until_status(f"{serving.api}/routes/p", 200)
    return serving


def write(file: Path, text: str) -> None:
    file.write_text(text)


def log_of(serving: Serving) -> str:
    return serving.process.log.read_text()


async def until_logged(serving: Serving, text: str, times: int = 1) -> None:
    await eventually(lambda: log_of(serving).count(text) >= times, what=f"{text!r} in the log")


async def retries_of(slb: Commands, serving: Serving) -> int:
    return int((await slb.json(f"{serving.api}/routes/p"))["settings"]["retries"])


async def reloads(slb: Commands, serving: Serving) -> dict[str, float]:
    _, text = await slb.get(f"{serving.api}/metrics")
    lines = [line for line in text.splitlines() if line.startswith("slb_config_reloads_total{")]
    return {line.split('"')[1]: float(line.split()[-1]) for line in lines}


async def test_a_changed_file_holds_without_anybody_saying_so(
    slb: Commands, serving: Serving, config: Path
) -> None:
    write(config, "max_request_line = 64\n[defaults]\nretries = 3\n")
    await until_logged(serving, '"names":["max_request_line","defaults"]')
    assert await retries_of(slb, serving) == 3
    await slb.until_status(f"{serving.url}/{'x' * 100}", 414)
    assert await reloads(slb, serving) == {"applied": 1}


async def test_sighup_reloads_at_once(slb: Commands, serving: Serving, config: Path) -> None:
    write(config, '[routes."/p"]\nretries = 4\n')
    os.kill(serving.process.pid, signal.SIGHUP)
    await until_logged(serving, '"names":["defaults","routes"]')
    assert await retries_of(slb, serving) == 4


async def test_what_is_not_valid_is_refused_whole_and_the_old_settings_stay(
    slb: Commands, serving: Serving, config: Path
) -> None:
    write(config, 'max_request_line = 64\n[defaults]\nretries = "many"\n')
    os.kill(serving.process.pid, signal.SIGHUP)
    await until_logged(serving, "settings_refused")
    assert "retries = 'many'" in log_of(serving)
    assert await retries_of(slb, serving) == 1
    await slb.until_status(f"{serving.url}/{'x' * 100}", 404)
    assert (await reloads(slb, serving))["refused"] >= 1


async def test_what_needs_a_restart_is_named_and_all_else_holds(
    slb: Commands, serving: Serving, config: Path
) -> None:
    write(config, 'api = "127.0.0.1:1"\nname = "other"\ndata_dir = "/nowhere"\n[defaults]\nretries = 5\n')
    os.kill(serving.process.pid, signal.SIGHUP)
    # `api` and `data_dir` are flags here, which win over the file.
    await until_logged(serving, '"names":["name"]')
    assert await retries_of(slb, serving) == 5


async def test_a_token_can_be_replaced(slb: Commands, valkey: Valkey) -> None:
    token = slb.directory / "token"
    write(token, "old\n")
    serving = await slb.serve("--workers", "2", redis=valkey.url, env={"SLB_API_TOKEN_FILE": str(token)})
    await slb.until_ready(serving)
    write(token, "new\n")
    await until_logged(serving, '"names":["api_token"]')
    assert (await slb.get(f"{serving.api}/status", Authorization="Bearer old"))[0] == 401
    assert (await slb.get(f"{serving.api}/status", Authorization="Bearer new"))[0] == 200
    _, text = await slb.get(f"{serving.api}/metrics", Authorization="Bearer new")
    assert "slb_redis_up 1.0" in text, "the supervisor reads its workers with the new one"


async def test_a_token_that_becomes_empty_is_refused_and_the_old_one_asked_for(
    slb: Commands, valkey: Valkey
) -> None:
    token = slb.directory / "token"
    write(token, "old\n")
    serving = await slb.serve(redis=valkey.url, env={"SLB_API_TOKEN_FILE": str(token)})
    await slb.until_status(f"{serving.api}/healthz", 200)
    write(token, "\n")
    await until_logged(serving, '"event":"settings_refused"')
    assert "SLB_API_TOKEN_FILE: " in log_of(serving)
    assert f"{token} is empty" in log_of(serving)
    assert (await slb.get(f"{serving.api}/routes"))[0] == 401
    assert (await slb.get(f"{serving.api}/routes", Authorization="Bearer old"))[0] == 200


async def test_not_a_request_nor_a_stream_nor_a_websocket_is_lost(
    slb: Commands, serving: Serving, config: Path, origin: str
) -> None:
    await slb.run("register", "/p", origin, "--url", serving.api)
    await slb.run("deregister", "/p", "127.0.0.1:1", "--url", serving.api)
    parts = urlsplit(serving.url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    writer.write(b"GET /p/stream HTTP/1.1\r\nHost: h\r\n\r\n")
    await reader.readuntil(b"data: 0")
    stopping = asyncio.Event()
    asking = asyncio.create_task(ask_on(slb, f"{serving.url}/p/ok", stopping.is_set))
    async with connect(f"{serving.url.replace('http', 'ws')}/p/echo") as socket:
        for retries in range(2, 6):
            write(config, f"max_headers = {50 + retries}\n[defaults]\nretries = {retries}\n")
            os.kill(serving.process.pid, signal.SIGHUP)
            await until_logged(serving, "settings_reloaded", retries - 1)
            await socket.send(str(retries))
            assert await socket.recv() == str(retries)
    await slb.get(f"http://{origin}/p/go-on")
    assert b"data: 1" in await soon(reader.readuntil(b"0\r\n\r\n"))
    writer.close()
    stopping.set()
    statuses = await asking
    assert set(statuses) == {200}


async def ask_on(slb: Commands, url: str, stopped: Callable[[], bool]) -> list[int]:
    """What is answered, one request after another."""
    statuses: list[int] = []
    while not stopped():
        statuses.append((await slb.get(url))[0])
    return statuses
