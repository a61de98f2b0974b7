"""`slb serve` as a process: how it starts, answers and ends."""

import asyncio
import os
import resource
import signal
import socket
import sys
from collections.abc import Callable
from typing import Any

import orjson
import pytest

from bench.ports import free_port
from tests.process.commands import Commands
from tests.process.serving import events, in_flight, with_upstream
from tests.support.ports import closed_port
from tests.support.valkey import Valkey
from tests.support.waiting import eventually, soon


async def test_it_serves_what_registers_itself(slb: Commands, valkey: Valkey) -> None:
    serving = await slb.until_ready(await slb.serve(redis=valkey.url))
    assert (await slb.get(f"{serving.url}/p"))[0] == 404
    await with_upstream(slb, serving)
    status, text = await slb.get(f"{serving.url}/p/x")
    assert status == 200
    assert '"upstream": "a"' in text
    assert valkey.admin.scard("slb_p") == 1


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="only Linux shows the limits of other processes")
async def test_it_takes_all_descriptors_it_may_have_and_logs_where_they_are_too_few(
    slb: Commands, valkey: Valkey
) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 256), hard))
    try:
        serving = await slb.serve(redis=valkey.url, env={"SLB_MAX_CONNECTIONS": "2000000000"})
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert resource.prlimit(serving.process.pid, resource.RLIMIT_NOFILE) == (hard, hard)
    few = [(line["max_connections"], line["open_files"]) for line in events(serving, "few_descriptors")]
    assert few == ([(2000000000, hard)] if hard != resource.RLIM_INFINITY else [])


async def test_a_token_that_looks_meant_for_commands_is_logged(slb: Commands, valkey: Valkey) -> None:
    env = {"SLB_API_TOKEN": "s3cret", "SLB_URL": "http://127.0.0.1:1"}
    (logged,) = events(await slb.serve(redis=valkey.url, env=env), "variable_for_commands")
    assert logged["variable"] == "SLB_API_TOKEN"
    assert "SLB_TOKEN" in logged["hint"]


@pytest.mark.parametrize("words", [(), ("--workers", "2"), ("--roles", "quota")], ids=" ".join)
async def test_every_line_that_it_writes_is_json_where_its_log_is(
    slb: Commands, valkey: Valkey, words: tuple[str, ...]
) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "slb", "serve", "--listen", "127.0.0.1:0", "--api", "127.0.0.1:0", *words),
        *("--redis", valkey.url, "--data-dir", str(slb.directory / "data")),
        env={**os.environ, "SLB_WORKRES": "2"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    assert process.stdout is not None
    lines: list[dict[str, Any]] = []
    while not lines or lines[-1]["event"] != "serving":
        lines.append(orjson.loads(await process.stdout.readline()))
    serving = lines[-1]
    for url in (serving["api"], *serving["traffic"]):
        await slb.until_status(f"{url}/nowhere", 404)
    process.terminate()
    rest, _ = await process.communicate()
    lines += [orjson.loads(line) for line in rest.splitlines()]
    (misspelt,) = [line for line in lines if line["event"] == "variable_sets_nothing"]
    assert (misspelt["variable"], misspelt["meant"]) == ("SLB_WORKRES", "SLB_WORKERS")
    assert {"serving", "request", "stopping"} <= {line["event"] for line in lines}
    assert all(line["instance"] for line in lines if line is not misspelt), "that comes before anything is known"


async def test_for_a_person_it_prints_in_a_sentence_that_it_serves(slb: Commands, valkey: Valkey) -> None:
    flags = ("--listen", "127.0.0.1:0", "--api", "127.0.0.1:0", "--redis", valkey.url, "--log-format", "console")
    process = await slb.start("serve", *flags, "--data-dir", str(slb.directory / "data"))
    assert (await process.first_line()).startswith("slb ")


async def test_without_a_redis_url_it_prints_that_its_redis_is_embedded(slb: Commands) -> None:
    serving = await slb.until_ready(await slb.serve())
    assert f"embedded, for this machine only, in {slb.directory}/data/valkey" in serving.line
    assert await serving.process.stop() == 0


async def test_stopped_it_finishes_requests_in_flight_and_takes_no_new_ones(slb: Commands, valkey: Valkey) -> None:
    serving = await slb.until_ready(await slb.serve(redis=valkey.url))
    await with_upstream(slb, serving, "--slots", "2")
    slow = asyncio.create_task(slb.get(f"{serving.url}/p", **{"X-Service-Time": "1s"}))
    await in_flight(slb, serving, 1)
    os.kill(serving.process.pid, signal.SIGTERM)
    await slb.until_status(f"{serving.api}/readyz", 503)
    await slb.until_status(f"{serving.url}/p", 0)
    status, _ = await slow
    assert status == 200
    assert await serving.process.ended() == 0
    assert not list(valkey.admin.scan_iter("slb:instance:*")), "its heartbeat is removed"


@pytest.mark.parametrize("workers", [1, 2])
async def test_stopped_it_logs_what_it_waits_for_and_stopped_twice_it_ends_at_once(
    slb: Commands, valkey: Valkey, workers: int
) -> None:
    flags = ("--workers", str(workers), "--drain-timeout", "61s")
    serving = await slb.until_ready(await slb.serve(*flags, redis=valkey.url))
    await with_upstream(slb, serving, "--slots", "2")
    slow = asyncio.create_task(slb.get(f"{serving.url}/p", **{"X-Service-Time": "60s"}))
    await in_flight(slb, serving, 1)
    os.kill(serving.process.pid, signal.SIGINT)
    await eventually(
        lambda: any(line["connections"] and line["at_most"] == 61 for line in events(serving, "stopping"))
    )
    os.kill(serving.process.pid, signal.SIGINT)
    assert await serving.process.ended() == 1
    assert (await slow)[0] == 0
    cut = [(line["requests"], line["why"]) for line in events(serving, "requests_cut_off")]
    assert (1, "told_twice") in cut


@pytest.mark.parametrize("workers", [1, 2])
async def test_stopped_twice_with_nothing_to_cut_off_it_ends_as_if_stopped_once(
    slb: Commands, valkey: Valkey, workers: int
) -> None:
    started = await slb.serve("--workers", str(workers), redis=valkey.url, env={"SLB_DRAIN_DELAY": "61s"})
    serving = await slb.until_ready(started)
    os.kill(serving.process.pid, signal.SIGINT)
    await eventually(lambda: len(events(serving, "stopping")) == workers, what="each has had the first signal")
    os.kill(serving.process.pid, signal.SIGINT)
    assert await serving.process.ended() == 0
    assert not events(serving, "requests_cut_off")


async def test_the_drain_timeout_bounds_how_long_it_waits(slb: Commands, valkey: Valkey) -> None:
    serving = await slb.until_ready(await slb.serve("--drain-timeout", "200ms", redis=valkey.url))
    await with_upstream(slb, serving, "--slots", "2")
    slow = asyncio.create_task(slb.get(f"{serving.url}/p", **{"X-Service-Time": "60s"}))
    await in_flight(slb, serving, 1)
    assert await serving.process.stop() == 0
    assert (await slow)[0] == 0
    ((requests, why),) = [(line["requests"], line["why"]) for line in events(serving, "requests_cut_off")]
    assert (requests, why) == (1, "drain_timeout")


async def test_a_port_in_use_is_one_line(slb: Commands) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        for flag in ("listen", "api"):
            other = "api" if flag == "listen" else "listen"
            result = await slb.run("serve", f"--{flag}", address, f"--{other}", "127.0.0.1:0")
            assert result.code == 1
            assert result.err == f"slb: {address} is in use (setting {flag})\n"


async def test_a_port_taken_while_it_starts_is_its_last_line_and_nothing_else_is_said_to_have_ended(
    slb: Commands,
) -> None:
    api = free_port()
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", free_port()))
        address = f"127.0.0.1:{other.getsockname()[1]}"
        no_redis = f"redis://{closed_port()}"  # so that it waits for routes before it listens
        flags = ("--listen", address, "--api", f"127.0.0.1:{api}", "--access-log", "errors", "--redis", no_redis)
        process = await slb.start("serve", *flags)
        await slb.until_status(f"http://127.0.0.1:{api}/readyz", 503)
        other.listen()
        assert await process.ended() == 1
    lines = process.log.read_text().splitlines()
    assert lines[-1] == f"slb: {address} is in use (setting listen)"
    assert any('"path":"/readyz"' in line for line in lines)
    assert not [line for line in lines if "task_ended" in line]


async def test_a_refused_login_ends_the_start_with_one_line(slb: Commands, valkeys: Callable[..., Valkey]) -> None:
    guarded = valkeys(requirepass="right")
    url = guarded.url.replace("unix://", "unix://:wrong@")
    result = await slb.run("serve", "--listen", "127.0.0.1:0", "--api", "127.0.0.1:0", "--redis", url)
    assert result.code == 1
    assert result.err.startswith("slb: Redis at unix://")
    assert len(result.err.splitlines()) == 1
    assert "wrong@" not in result.err


async def test_a_redis_that_is_merely_away_does_not_end_the_start(slb: Commands, valkey: Valkey) -> None:
    first = await slb.until_ready(await slb.serve(redis=valkey.url))
    await with_upstream(slb, first)
    assert await first.process.stop() == 0
    valkey.kill()
    second = await slb.until_ready(await slb.serve(redis=valkey.url))
    assert second.line.rstrip().endswith(f"Redis: {valkey.url}, which does not answer yet")
    assert (await slb.get(f"{second.url}/p"))[0] == 200, "from the table on disk"
    status = await slb.json(f"{second.api}/status")
    assert status["redis"]["mode"] == "fail_open"
    valkey.start()
    await slb.upstream("b", "--register", second.api, "--path", "/q")
    await slb.until_status(f"{second.url}/q", 200)


async def test_without_redis_and_a_table_on_disk_it_prints_that_it_serves_nothing_yet(
    slb: Commands, valkey: Valkey
) -> None:
    valkey.kill()
    serving = await slb.serve(redis=valkey.url)
    assert "which does not answer yet: no routes are known, and every request gets 503 not_ready" in serving.line
    assert (await slb.get(f"{serving.url}/p"))[0] == 503


async def test_it_ends_with_its_stdin_where_a_flag_asks_for_that(slb: Commands, valkey: Valkey) -> None:
    serving = await slb.until_ready(await slb.serve("--end-with-stdin", redis=valkey.url))
    serving.process.close_stdin()
    assert await serving.process.ended() == 0


async def test_what_the_api_answers_is_in_the_access_log_and_counted_apart_from_traffic(
    slb: Commands, valkey: Valkey
) -> None:
    probes = {"SLB_ACCESS_LOG_PROBES": "true"}
    serving = await slb.until_ready(await slb.serve("--log-format", "json", redis=valkey.url, env=probes))
    assert (await slb.get(f"{serving.api}/nowhere", **{"X-Request-Id": "of-the-api"}))[0] == 404
    assert (await slb.get(f"{serving.api}/healthz", **{"X-Request-Id": "well"}))[0] == 200
    async with slb.session.post(
        f"{serving.url}/register", data=b"{", headers={"X-Request-Id": "of-traffic"}
    ) as reply:
        assert reply.status == 403
    metrics = (await slb.get(f"{serving.api}/metrics"))[1]
    for code, reason in (("404", "no_route"), ("403", "forbidden")):
        assert f'slb_api_requests_total{{code="{code}",reason="{reason}"}} 1.0' in metrics
    assert 'slb_api_requests_total{code="200",reason=""}' in metrics
    assert "slb_requests_total{" not in metrics
    assert (await slb.json(f"{serving.api}/status"))["traffic"]["requests"] == 0
    assert await serving.process.stop() == 0
    lines = {
        line["request_id"]: line
        for line in map(orjson.loads, serving.process.log.read_text().splitlines())
        if "request_id" in line
    }
    seen = [
        (lines[name]["method"], lines[name]["path"], lines[name]["status"], lines[name]["reason"])
        for name in ("of-the-api", "well", "of-traffic")
    ]
    assert seen == [
        ("GET", "/nowhere", 404, "no_route"),
        ("GET", "/healthz", 200, ""),
        ("POST", "/register", 403, "forbidden"),
    ]


async def test_probes_and_scrapes_are_counted_and_stand_in_the_access_log_only_where_they_were_refused(
    slb: Commands, valkey: Valkey
) -> None:
    with_token = {"SLB_API_TOKEN": "secret"}
    serving = await slb.until_ready(await slb.serve("--log-format", "json", redis=valkey.url, env=with_token))
    token = {"Authorization": "Bearer secret"}
    for url in (f"{serving.api}/healthz", f"{serving.url}/_slb/healthz", f"{serving.url}/_slb/readyz"):
        assert (await slb.get(url))[0] == 200
    assert (await slb.get(f"{serving.api}/metrics"))[0] == 401
    assert (await slb.get(f"{serving.api}/routes", **token))[0] == 200
    metrics = (await slb.get(f"{serving.api}/metrics", **token))[1]
    assert 'slb_api_requests_total{code="401",reason="unauthorized"} 1.0' in metrics
    assert await serving.process.stop() == 0
    lines = [orjson.loads(line) for line in serving.process.log.read_text().splitlines()]
    seen = [(line["path"], line["status"]) for line in lines if line["event"] == "request"]
    assert seen == [("/metrics", 401), ("/routes", 200)]


async def test_the_access_log_keeps_the_apis_errors_only_where_that_is_asked(slb: Commands, valkey: Valkey) -> None:
    serving = await slb.until_ready(
        await slb.serve("--log-format", "json", "--access-log", "errors", redis=valkey.url)
    )
    await slb.get(f"{serving.api}/nowhere")
    await slb.get(f"{serving.api}/healthz")
    assert await serving.process.stop() == 0
    lines = serving.process.log.read_text()
    assert '"path":"/nowhere"' in lines
    assert "/healthz" not in lines


async def test_what_the_api_refuses_cannot_fill_the_log(slb: Commands, valkey: Valkey) -> None:
    """Neither what it cannot read nor what it does not have."""
    serving = await slb.until_ready(
        await slb.serve("--log-format", "json", redis=valkey.url, env={"SLB_ACCESS_LOG_REFUSED": "40"})
    )
    host, port = serving.api.removeprefix("http://").split(":")
    for _ in range(20):
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"GET\r\n\r\n")
        assert (await soon(reader.read(), 20)).startswith(b"HTTP/1.1 400 ")
        writer.close()
        assert (await slb.get(f"{serving.api}/nowhere"))[0] == 404
    assert await serving.process.stop() == 0
    lines = [orjson.loads(line) for line in serving.process.log.read_text().splitlines() if line.startswith("{")]
    refused = [line for line in lines if line["event"] == "malformed_request" or line.get("reason")]
    suppressed = [line["lines"] for line in lines if line["event"] == "access_log_suppressed"]
    assert len(refused) + sum(suppressed) >= 60  # and what was refused before it was ready
    assert 0 < len(refused) < 6


@pytest.mark.parametrize("words", [("serve", "--listen", "127.0.0.1:0", "--api", "127.0.0.1:0"), ("check-config",)])
async def test_a_data_directory_that_others_may_write_to_ends_the_start_in_one_line(
    slb: Commands, valkey: Valkey, words: tuple[str, ...]
) -> None:
    """With a Redis elsewhere too: the table there is what is served while that is away."""
    data = slb.directory / "shared"
    data.mkdir()
    data.chmod(0o777)
    result = await slb.run(*words, "--redis", valkey.url, env={"SLB_DATA_DIR": str(data)})
    assert result.code == 1
    last = result.err.splitlines()[-1]
    assert last.startswith(f"slb: data_dir: others may write to {data} (mode 0777)")
    assert f"chmod go-w {data}" in last


SETTINGS_NO_TABLE = """{"version":1}
{"path":"/p","members":["127.0.0.1:1"],"settings":["policy"]}
{"routes":1,"upstreams":0}
"""


@pytest.mark.parametrize("text", ["[]", SETTINGS_NO_TABLE, "\x00", None], ids=["list", "settings", "nul", "folder"])
async def test_a_table_of_wrong_shape_does_not_end_the_start(
    slb: Commands, valkey: Valkey, text: str | None
) -> None:
    first = await slb.until_ready(await slb.serve(redis=valkey.url))
    valkey.admin.sadd("slb_p", "127.0.0.1:1")
    await eventually(lambda: any((slb.directory / "data").glob("table-*.json")), what="a table on disk")
    assert await first.process.stop() == 0
    (table,) = (slb.directory / "data").glob("table-*.json")
    valkey.kill()
    if text is None:
        table.unlink()
        table.mkdir()
    else:
        table.write_text(text)
    second = await slb.serve(redis=valkey.url)
    assert (await slb.get(f"{second.url}/p"))[0] == 503
    assert '"event":"disk_table_unusable"' in second.process.log.read_text()
    assert (await slb.get(f"{second.api}/healthz"))[0] == 200
