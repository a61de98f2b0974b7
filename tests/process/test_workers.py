"""`slb serve --workers N`: a supervisor, its workers, and which outlives which."""

import asyncio
import os
import signal
import socket
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson

from tests.process.commands import Commands, Serving
from tests.process.serving import until_all_ready
from tests.support.valkey import Valkey
from tests.support.waiting import eventually, until, until_found, within

WORKERS = 2
NO_ROUTES = ": no routes are known, and every request gets 503 not_ready"


async def serve(slb: Commands, valkey: Valkey, *arguments: str) -> Serving:
    """All workers ready, each with an upstream at /p."""
    _, member = await slb.upstream("a", "--slots", "4")
    valkey.admin.sadd("slb_p", member)
    serving = await slb.until_ready(await slb.serve("--workers", str(WORKERS), *arguments, redis=valkey.url))
    await until_all_ready(slb, serving)
    await slb.until_status(f"{serving.url}/p", 200)
    return serving


def gone(pids: Iterable[int]) -> bool:
    return not any(alive(pid) for pid in pids)


def shown_of(pid: int) -> bytes:
    """What any user may see of a process, where the system has it."""
    arguments = Path(f"/proc/{pid}/cmdline")
    return arguments.read_bytes() if arguments.exists() else b""


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def test_each_worker_is_an_instance_and_the_supervisor_is_none(slb: Commands, valkey: Valkey) -> None:
    serving = await serve(slb, valkey, "--name", "box")
    listed = await slb.until_json(f"{serving.api}/instances", lambda found: len(found["instances"]) >= WORKERS)
    instances = listed["instances"]
    assert sorted(each["name"] for each in instances) == ["box/0", "box/1"]
    assert f"with {WORKERS} workers" in serving.line
    assert NO_ROUTES not in serving.line


async def test_what_any_worker_has_found_of_an_upstream_is_shown(slb: Commands, valkey: Valkey) -> None:
    serving = await serve(slb, valkey)
    (route,) = (await slb.json(f"{serving.api}/routes"))["routes"]
    (member,) = route["members"]
    assert member["health"] == "unchecked"  # the list goes by checks alone
    assert (await slb.json(f"{serving.api}/routes/p"))["members"][0]["health"] == "up"
    assert (await slb.json(f"{serving.api}/upstreams/{member['member']}"))["alive_ago"] is not None


async def test_every_line_of_the_log_names_its_instance_and_its_worker(slb: Commands, valkey: Valkey) -> None:
    serving = await serve(slb, valkey, "--name", "box", "--log-format", "json")
    for _ in range(20):
        await slb.get(f"{serving.url}/p", Connection="close")
    await slb.get(f"{serving.api}/nowhere")
    assert await serving.process.stop() == 0
    lines = [orjson.loads(line) for line in serving.process.log.read_text().splitlines()]
    assert {(line["instance"], line["worker"]) for line in lines if line["event"] == "redis_up"} == {
        ("box", "supervisor"),
        ("box/0", "0"),
        ("box/1", "1"),
    }
    assert {(line["instance"], line["worker"]) for line in lines if line.get("path") == "/nowhere"} == {
        ("box", "supervisor")
    }
    assert {line["instance"] for line in lines if line["event"] == "request" and line["path"] == "/p"} <= {
        "box/0",
        "box/1",
    }
    assert all("worker" in line for line in lines)


async def test_the_line_that_it_serves_comes_once_it_does(slb: Commands, valkey: Valkey) -> None:
    serving = await slb.serve("--workers", str(WORKERS), redis=valkey.url)
    assert (await slb.get(f"{serving.url}/p"))[0] == 404
    assert (await slb.get(f"{serving.api}/readyz"))[0] == 200
    assert (await slb.json(f"{serving.api}/status"))["draining"] is False


async def test_without_a_table_the_workers_are_not_ready_and_none_drains(slb: Commands, valkey: Valkey) -> None:
    valkey.kill()
    serving = await slb.serve("--workers", str(WORKERS), redis=valkey.url)
    assert serving.line.rstrip().endswith(f"{valkey.url}, which does not answer yet{NO_ROUTES}")
    for url in (f"{serving.url}/p", f"{serving.api}/readyz"):
        status, text = await slb.get(url)
        assert (status, orjson.loads(text)["error"]) == (503, "not_ready")
    assert (await slb.json(f"{serving.api}/status"))["draining"] is False
    valkey.start()
    await slb.until_ready(serving)


async def test_the_workers_metrics_are_added_up(slb: Commands, valkey: Valkey) -> None:
    serving = await serve(slb, valkey)
    for _ in range(20):
        assert (await slb.get(f"{serving.url}/p", Connection="close"))[0] == 200
    _, text = await slb.get(f"{serving.api}/metrics")
    counted = [line for line in text.splitlines() if line.startswith("slb_requests_total") and 'code="200"' in line]
    assert sum(float(line.split()[-1]) for line in counted) >= 20
    assert "slb_redis_up 1.0" in text.splitlines()


async def test_the_pools_and_the_last_decision_are_those_of_all_workers(slb: Commands, valkey: Valkey) -> None:
    serving = await serve(slb, valkey)
    settings = {"policy": "least_inflight", "max_inflight": 3, "when_full": "queue"}
    async with slb.session.patch(f"{serving.api}/routes/p", json=settings) as reply:
        assert reply.status == 200

    async def pool() -> Any:
        return (await slb.json(f"{serving.api}/status"))["ledger"]["pools"].get("/p")

    async def capped() -> bool:
        """Whether by now each worker has counted a request: then it follows the settings."""
        await asyncio.gather(*(slb.get(f"{serving.url}/p", Connection="close") for _ in range(4)))
        shown = await pool()
        return shown is not None and shown["holders"] == WORKERS

    await until_found(capped)
    slow = {"X-Service-Time": "60s", "Connection": "close"}
    asked = [asyncio.create_task(slb.get(f"{serving.url}/p", **slow)) for _ in range(5)]
    await until(pool, lambda now: now["queued"] == sum(now["waiting"].get("/p", {}).values()) == 2)
    shown = await until(pool, lambda now: now["scores"] == now["held"])
    assert (shown["mode"], list(shown["scores"].values())) == ("shared", [3])
    decision = (await slb.json(f"{serving.api}/routes/p"))["decision"]
    assert decision["decided_by"] == "redis"  # and which of the five is the last, their clocks do not show
    assert {each["verdict"] for each in decision["members"]} <= {"full", "chosen"}
    _, text = await slb.get(f"{serving.api}/metrics")
    (everywhere,) = [line for line in text.splitlines() if line.startswith("slb_") and 'scope="global"' in line]
    assert everywhere.endswith(" 3.0")
    for task in asked:
        task.cancel()


async def test_a_killed_worker_is_started_again_and_traffic_goes_on(slb: Commands, valkey: Valkey) -> None:
    serving = await serve(slb, valkey)
    before = await until_all_ready(slb, serving)
    os.kill(before[0], signal.SIGKILL)
    for _ in range(20):
        assert (await slb.get(f"{serving.url}/p", Connection="close"))[0] == 200
    await eventually(lambda: not alive(before[0]))
    after = await until_all_ready(slb, serving)
    assert before[0] not in after
    assert before[1] in after
    log = map(orjson.loads, serving.process.log.read_text().splitlines())
    assert [(line["number"], line["code"]) for line in log if line["event"] == "worker_ended"] == [(0, -9)]


async def test_stopped_the_workers_finish_their_requests(slb: Commands, valkey: Valkey) -> None:
    serving = await serve(slb, valkey)
    pids = await until_all_ready(slb, serving)
    slow = asyncio.create_task(slb.get(f"{serving.url}/p", **{"X-Service-Time": "3s"}))  # seen once a second
    await slb.until_json(f"{serving.api}/routes/p", lambda route: route["members"][0]["inflight"] == 1)
    os.kill(serving.process.pid, signal.SIGTERM)
    await slb.until_status(f"{serving.url}/p", 0)
    assert (await slow)[0] == 200
    assert await serving.process.ended() == 0
    assert gone(pids)


async def test_workers_end_with_a_supervisor_that_is_killed(slb: Commands, valkey: Valkey) -> None:
    serving = await serve(slb, valkey)
    pids = await until_all_ready(slb, serving)
    serving.process.kill()
    await eventually(lambda: gone(pids), timeout=30.0)


async def test_a_token_reaches_the_workers_and_is_not_seen_among_the_processes(
    slb: Commands, valkey: Valkey
) -> None:
    token = slb.directory / "token"
    token.write_text("s3cret-token\n")
    serving = await slb.serve("--workers", str(WORKERS), redis=valkey.url, env={"SLB_API_TOKEN_FILE": str(token)})
    await slb.until_ready(serving)
    assert (await slb.get(f"{serving.api}/status"))[0] == 401
    with_token = {"Authorization": "Bearer s3cret-token"}
    status, text = await slb.get(f"{serving.api}/metrics", **with_token)
    assert status == 200
    assert "slb_redis_up 1.0" in text.splitlines()
    _, text = await slb.get(f"{serving.api}/status", **with_token)
    shown = [shown_of(worker["pid"]) for worker in orjson.loads(text)["workers"]]
    assert len(shown) == WORKERS
    assert not any(b"s3cret" in each for each in shown)


async def test_status_shows_what_workers_have_ejected(slb: Commands, valkey: Valkey) -> None:
    serving = await serve(slb, valkey)
    with socket.create_server(("127.0.0.1", 0)) as closed:
        dead = "{}:{}".format(*closed.getsockname())
    assert (await slb.run("route", "set", "/p", "eject_after=1", "eject_time=1h", "--url", serving.api)).code == 0
    assert (await slb.run("register", "/p", dead, "--url", serving.api)).code == 0
    async with within(20):
        while (status := await slb.json(f"{serving.api}/status"))["health"]["ejected"] != 1:
            await slb.get(f"{serving.url}/p")
    assert status["health"] == {"down": 0, "ejected": 1, "panic": []}


async def test_status_and_routes_show_what_the_workers_do_and_forget_no_count_of_a_dead_one(
    slb: Commands, valkey: Valkey
) -> None:
    serving = await serve(slb, valkey)
    route, status = f"{serving.api}/routes/p", f"{serving.api}/status"
    host, port = serving.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"GET /p HTTP/1.1\r\nHost: slb\r\nX-Service-Time: 60s\r\n\r\n")
    await slb.until_json(route, lambda found: found["members"][0]["inflight"] == 1)
    assert (await slb.get(f"{serving.api}/nowhere"))[0] == 404
    before = await slb.until_json(status, lambda found: found["traffic"]["requests"] >= 1)
    for pid in await until_all_ready(slb, serving):
        os.kill(pid, signal.SIGKILL)
    with suppress(ConnectionResetError):
        assert await reader.read() == b""
    writer.close()
    after = await slb.until_json(status, lambda found: found["traffic"]["client_connections"] == 0)
    for name in ("requests", "retries", "client_disconnects"):
        assert after["traffic"][name] >= before["traffic"][name]
    assert before["traffic"]["by_code"].items() <= after["traffic"]["by_code"].items()
    await slb.until_json(route, lambda found: found["members"][0]["inflight"] == 0)
    await until_all_ready(slb, serving)
    text = (await slb.get(f"{serving.api}/metrics"))[1]
    assert 'slb_api_requests_total{code="404",reason="no_route"} 1.0' in text
