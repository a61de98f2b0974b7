"""The commands that speak to an slb's API."""

import asyncio
import sys
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import orjson
import pytest

from slb.demo.processes import Process
from tests.process.commands import Commands, Serving
from tests.support.valkey import Valkey
from tests.support.waiting import until, within


@pytest.fixture
async def serving(slb: Commands, valkey: Valkey, monkeypatch: pytest.MonkeyPatch) -> Serving:
    """An slb that the commands find by SLB_URL."""
    found = await slb.until_ready(await slb.serve(redis=valkey.url))
    monkeypatch.setenv("SLB_URL", found.api)
    return found


async def output(slb: Commands, *arguments: str) -> str:
    result = await slb.run(*arguments)
    assert (result.code, result.err) == (0, "")
    return result.out


async def test_targets_are_registered_shown_and_deregistered(slb: Commands, serving: Serving) -> None:
    out = await output(slb, "register", "/p1", "10.0.0.1", "https://gpu.test", "--weight", "3", "--zone", "z1")
    assert out == "/p1: 10.0.0.1:80 added\n/p1: https://gpu.test:443 added\n"
    again = await output(slb, "register", "/p1", "10.0.0.1")
    assert again == "/p1: 10.0.0.1:80 was there already, now for good\n"
    zoned = await output(slb, "register", "/p1", "10.0.0.1", "--zone", "z2")
    assert zoned == "/p1: 10.0.0.1:80 was there already, now for good, zone = z2 set\n"
    table = await output(slb, "routes")
    assert "/p1" in table
    assert "https://gpu.test:443" in table
    assert "z1" in table
    shown = orjson.loads(await output(slb, "routes", "--json"))
    assert [member["weight"] for member in shown["routes"][0]["members"]] == [3, 3]
    assert await output(slb, "deregister", "/p1", "10.0.0.1") == "/p1: 10.0.0.1:80 removed\n"
    missed = await slb.run("deregister", "/p1", "10.0.0.9", "10.0.0.1")
    why = "slb: /p1: not there: 10.0.0.9:80, 10.0.0.1:80 (slb routes shows what is)\n"
    assert (missed.code, missed.out, missed.err) == (1, "", why)


async def test_of_several_targets_all_are_registered_or_the_error_names_which(
    slb: Commands, serving: Serving, valkey: Valkey
) -> None:
    for targets in (("10.0.0.1", "0.0.0.0"), ("10.0.0.1", "gpu:x"), ("gpu.test", "h:99999")):
        result = await slb.run("register", "/p1", *targets)
        assert (result.code, result.out) == (1, "")
    assert not valkey.admin.exists("slb_p1")
    result = await slb.run("register", "/p1", "gpu.test", "0.0.0.0", "10.0.0.1")
    assert (result.code, result.out) == (1, "/p1: gpu.test:80 added\n")
    assert "0.0.0.0: " in result.err
    assert result.err.endswith("(registered before it: gpu.test)\n")
    out = await output(slb, "register", "/p1", "10.0.0.1", "[fd00::1]:81", "--weight", "2")
    assert out == "/p1: 10.0.0.1:80 added\n/p1: [fd00::1]:81 added\n"


async def test_settings_of_a_route_are_set_unset_and_removed(slb: Commands, serving: Serving) -> None:
    await output(slb, "register", "/p1", "10.0.0.1")
    out = await output(
        slb,
        *("route", "set", "/p1", "policy=p2c", "retries=2", "connect_timeout=250ms", "priorities=low=1,high=8"),
    )
    *lines, last = out.splitlines()
    assert sorted(lines) == [
        "connect_timeout = 250ms    (route)",
        "policy = p2c    (route)",
        "priorities = high=8,low=1    (route)",
        "retries = 2    (route)",
    ]
    assert last.endswith("all: slb routes /p1")
    out = await output(slb, "route", "unset", "/p1", "policy", "priorities")
    assert "policy = round_robin    (built in)" in out
    assert "priorities = none    (built in)" in out
    assert await output(slb, "route", "delete", "/p1") == "/p1: removed\n"
    assert "no routes yet" in await output(slb, "routes")


async def test_settings_before_upstreams_are_kept_and_that_none_serves_there_is_printed(
    slb: Commands, serving: Serving
) -> None:
    result = await slb.run("route", "set", "/p1/x", "retries=2")
    assert (result.code, result.out.splitlines()[0]) == (0, "retries = 2    (route)")
    assert result.err.startswith("slb: no upstream is registered at /p1/x: ")
    assert len(result.err.splitlines()) == 1
    await output(slb, "register", "/p1/x", "10.0.0.1")
    assert "retries = 3    (route)" in await output(slb, "route", "set", "/p1/x", "retries=3")


async def test_routes_show_what_the_config_file_sets_for_one(slb: Commands, valkey: Valkey, tmp_path: Path) -> None:
    (tmp_path / "slb.toml").write_text('[routes."/p1"]\nretries = 3\n[defaults]\nfirst_byte_timeout = "9s"\n')
    serving = await slb.until_ready(await slb.serve("--config", str(tmp_path / "slb.toml"), redis=valkey.url))
    url = ("--url", serving.api)
    await output(slb, "register", "/p1", "10.0.0.1", *url)
    await output(slb, "route", "set", "/p1", "policy=p2c", *url)
    assert "policy=p2c, retries=3 (config file)" in await output(slb, "routes", *url)


async def test_one_route_is_shown_whole_and_of_a_path_that_is_none_those_below_it(
    slb: Commands, serving: Serving
) -> None:
    for path in ("/models/a", "/models/b", "/other"):
        await output(slb, "register", path, "10.0.0.10", "10.0.0.9")
    await output(slb, "route", "set", "/models/a", "policy=p2c")
    rows = cells(await output(slb, "routes", "/models/a/"))
    assert ["policy", "p2c", "route"] in rows
    assert ["retries", "1", "built in"] in rows
    assert rows[-2:] == [["10.0.0.9:80", "unchecked", "0"], ["10.0.0.10:80", "unchecked", "0"]]
    assert orjson.loads(await output(slb, "routes", "/models/a", "--json"))["path"] == "/models/a"
    assert [row[0] for row in cells(await output(slb, "routes", "/models")) if row[0]] == ["/models/a", "/models/b"]
    assert [row[0] for row in cells(await output(slb, "routes", "/")) if row[0]] == [
        "/models/a",
        "/models/b",
        "/other",
    ]
    below = orjson.loads(await output(slb, "routes", "/models", "--json"))["routes"]
    assert [route["path"] for route in below] == ["/models/a", "/models/b"]
    nothing = await slb.run("routes", "/mod")
    assert (nothing.code, nothing.out) == (1, "")
    assert nothing.err == "slb: there is no route /mod, and none below it (slb routes shows all)\n"
    assert (await slb.run("routes", "mod")).err.startswith("slb: path 'mod' does not start with '/'")


async def test_status_and_instances_show_the_state(slb: Commands, serving: Serving) -> None:
    out = await output(slb, "status")
    assert "up=true" in out
    assert "requests/s" in out
    (started,) = [line.split(maxsplit=1)[1].strip() for line in out.splitlines() if line.startswith("started")]
    assert datetime.fromisoformat(started)
    assert orjson.loads(await output(slb, "status", "--json"))["redis"]["mode"] == "sync"
    assert serving.url.removeprefix("http://") in await output(slb, "instances")


async def test_of_upstreams_only_attributes_that_are_set_have_a_column(slb: Commands, serving: Serving) -> None:
    await output(slb, "register", "/models/llama", "192.168.100.100:18080", "192.168.100.101:18080")
    await output(slb, "route", "set", "/models/llama", "policy=p2c")
    assert (await slb.run("route", "set", "/none", "policy=p2c")).code == 0
    lines = (await output(slb, "routes")).splitlines()
    assert max(map(len, lines)) <= 80
    assert titles(lines) == ["route", "upstream", "health", "in flight", "settings"]
    await output(slb, "register", "/models/llama", "192.168.100.101:18080", "--slots", "2", "--zone", "z1")
    lines = (await output(slb, "routes")).splitlines()
    assert titles(lines) == ["route", "upstream", "health", "slots", "zone", "in flight", "settings"]
    assert ["", "192.168.100.101:18080", "unchecked", "2", "z1", "0", ""] in cells("\n".join(lines))


def titles(lines: list[str]) -> list[str]:
    return [each.strip() for each in lines[1].split("\u2503")[1:-1]]


async def test_without_a_table_the_routes_are_shown_as_unknown_and_not_as_none(
    slb: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    nowhere = await slb.serve(redis="redis://127.0.0.1:1")
    monkeypatch.setenv("SLB_URL", nowhere.api)
    for arguments in (("routes",), ("status", "--over", "0")):
        assert (await output(slb, *arguments)).endswith("The routes are not known yet (Redis does not answer).\n")


async def test_the_token_may_stand_in_a_file_and_without_one_the_error_names_the_file(
    slb: Commands, valkey: Valkey, tmp_path: Path
) -> None:
    (tmp_path / "token").write_text("s3cret\n")
    file = str(tmp_path / "token")
    serving = await slb.until_ready(await slb.serve(redis=valkey.url, env={"SLB_API_TOKEN_FILE": file}))
    refused = await slb.run("routes", "--url", serving.api)
    assert refused.code == 1
    assert refused.err.endswith(" (--token, SLB_TOKEN or SLB_TOKEN_FILE)\n")
    assert (await slb.run("routes", "--url", serving.api, env={"SLB_TOKEN_FILE": file})).code == 0


async def test_reset_empties_redis_and_every_instance_follows(
    slb: Commands, serving: Serving, valkey: Valkey
) -> None:
    await output(slb, "register", "/p1", "10.0.0.1")
    assert await output(slb, "reset", "--yes", "--redis", valkey.url) == "1 route removed\n"
    await slb.until_status(f"{serving.url}/p1", 404)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
async def test_an_answer_that_cannot_be_written_is_one_line(slb: Commands, serving: Serving) -> None:
    await output(slb, "register", "/p1", "10.0.0.1")
    for words, why in (
        ("routes >/dev/full", "No space left on device"),
        ("routes --json >/dev/full", "No space left on device"),
        ("--help >/dev/full", "No space left on device"),
        ("routes >&-", "it is closed"),
        ("route set /p1 retries=2 >&-", "it is closed"),
    ):
        shell = await asyncio.create_subprocess_exec(
            *("sh", "-c", f"{sys.executable} -m slb {words}"), stderr=asyncio.subprocess.PIPE
        )
        _, err = await shell.communicate()
        assert (shell.returncode, err.decode()) == (1, f"slb: stdout cannot be written: {why}\n")


async def test_a_listener_for_traffic_and_one_without_the_quota_router_are_not_taken_for_the_api(
    slb: Commands, serving: Serving
) -> None:
    traffic = f"slb: {serving.url} is where an slb takes traffic: --url (or SLB_URL) is to name the API"
    for words in (("status",), ("routes",), ("route", "delete", "/p1"), ("quota", "models")):
        result = await slb.run(*words, "--url", serving.url)
        assert (result.code, result.out) == (1, "")
        assert result.err.startswith(traffic)
    for line in ("models", "models set m weight=1", "models delete m", "advice"):
        result = await slb.run("quota", *line.split())
        assert (result.code, result.out) == (1, "")
        assert result.err.startswith(f"slb: the slb at {serving.api} has no quota router: ")
        assert "--roles proxy,quota" in result.err


REFUSED = {
    ("register", "p1", "10.0.0.1"): "bad_request",
    ("register", "/p1", "0.0.0.0"): "slb: POST /register: 400 bad_request: target: 0.0.0.0 is unspecified",
    ("register", "/p1", "::1:9000"): "an IPv6 address is written [::1]:9000",
    ("register", "/p1", "127.0.0.1:70000"): "bad_request: target: '127.0.0.1:70000': the port",
    ("route", "set", "/p1", "policy=best"): "policy",
    ("route", "set", "/p1", "colour=red"): "colour",
    ("route", "set", "/p1", "priorities=high"): "priorities = 'high': ",
    ("route", "delete", "/none"): "no_route",
    ("status", "--url", "http://127.0.0.1:1"): "is slb serving there",
}


async def test_what_is_refused_is_reported_in_one_line(slb: Commands, serving: Serving) -> None:
    results = await asyncio.gather(*(slb.run(*arguments) for arguments in REFUSED))
    for fault, result in zip(REFUSED.values(), results, strict=True):
        assert result.code == 1
        assert result.err.startswith("slb: ")
        assert fault in result.err
        assert len(result.err.splitlines()) == 1


async def test_a_drained_target_is_sent_nothing_new_and_finishes_what_it_has(
    slb: Commands, serving: Serving
) -> None:
    _, first = await slb.upstream("a", "--register", serving.api, "--path", "/p1", "--slots", "2")
    await slb.until_status(f"{serving.url}/p1", 200)
    slow = asyncio.create_task(slb.get(f"{serving.url}/p1", **{"X-Service-Time": "4s"}))
    await slb.until_json(f"{serving.api}/upstreams/{first}", lambda shown: shown["inflight"] == 1)
    drained = await slb.run("drain", first, "--yes")
    assert drained.out == f"{first}: is sent nothing new, 1 in flight in the fleet\n"
    assert "(draining)" in await output(slb, "routes")
    assert (await slb.get(f"{serving.url}/p1"))[0] == 503
    assert (await slow)[0] == 200
    assert await output(slb, "undrain", first) == f"{first}: takes requests again\n"
    assert (await slb.get(f"{serving.url}/p1"))[0] == 200


async def test_status_shows_routes_with_their_rates_and_upstreams_with_health_and_requests_in_flight(
    slb: Commands, serving: Serving
) -> None:
    _, target = await slb.upstream("a", "--register", serving.api, "--path", "/p1", "--slots", "4")
    await slb.until_status(f"{serving.url}/p1", 200)
    await output(slb, "register", "/p2", "10.0.0.1")
    await output(slb, "register", "/p2", "10.0.0.2")
    await output(slb, "drain", "10.0.0.1")
    shown = asyncio.create_task(output(slb, "status", "--over", "4s"))
    slow = asyncio.create_task(slb.get(f"{serving.url}/p1", **{"X-Service-Time": "10s"}))
    while not shown.done():
        assert (await slb.get(f"{serving.url}/p1"))[0] == 200
    slow.cancel()
    rows = cells(await shown)
    (busy,) = [row for row in rows if row[0] == "/p1"]
    assert busy[2:] in ([target, "up", "1", ""], [target, "up", "2", ""])
    assert float(busy[1]) > 1
    (idle,) = [row for row in rows if "10.0.0.1:80" in row]
    assert idle[1:] == ["", "10.0.0.1:80", "draining", "0", ""]


async def test_status_shows_the_scores_and_queues_of_the_whole_fleet_also_live(
    slb: Commands, serving: Serving, valkey: Valkey
) -> None:
    other = await slb.until_ready(await slb.serve(redis=valkey.url))
    _, target = await slb.upstream("a", "--register", serving.api, "--path", "/p1", "--slots", "2")
    await output(slb, "register", "/p1", "[fd00::1]:81")
    await output(slb, "drain", "[fd00::1]:81")
    await output(slb, "route", "set", "/p1", "policy=least_inflight", "max_inflight=2", "when_full=queue")
    await slb.until_json(f"{other.api}/routes/p1", lambda route: route["settings"]["max_inflight"] == 2)
    slow = {"X-Service-Time": "30s"}
    asked = []
    for each in (serving, other, serving):
        asked.append(asyncio.create_task(slb.get(f"{each.url}/p1", **slow)))
        await until(lambda: known_to_the_ledger(slb, serving), lambda known: known == len(asked))
    watching = await slb.start("status", "--watch", "--url", serving.api)
    pool = await row_of(watching, lambda row: row[:2] == ["/p1", "shared"] and row[3:] == ["1", "1", "1", ""])
    assert pool[2] == "2"
    await row_of(watching, lambda row: row[2:] == [target, "unchecked", "1", "2 of 2"])
    await row_of(watching, lambda row: row[2:] == ["[fd00::1]:81", "draining", "0", "0 of 2"])
    assert await watching.stop() == 0
    route = await slb.json(f"{serving.api}/routes/p1")
    assert route["decision"]["decided_by"] == "redis"
    assert (route["decision"]["outcome"], route["decision"]["position"]) == ("waiting", 0)
    assert [
        (each["score"], each["verdict"]) for each in route["decision"]["members"] if each["member"] == target
    ] == [(2, "full")]
    for task in asked:
        task.cancel()


async def known_to_the_ledger(slb: Commands, serving: Serving) -> int:
    """Requests that have a slot or a place in the queue, anywhere."""
    pools = (await slb.json(f"{serving.api}/status"))["ledger"]["pools"].values()
    return sum(sum((pool["scores"] or {}).values()) + pool["queued"] for pool in pools)


async def row_of(process: Process, wanted: Callable[[list[str]], bool]) -> list[str]:
    """The next row it draws that is so; a second passes between two tables of a kind."""
    async with within(20):
        while True:
            for row in cells(await process.first_line()):
                if wanted(row):
                    return row


def cells(text: str) -> list[list[str]]:
    """The rows of the tables drawn."""
    return [[cell.strip() for cell in line.split("\u2502")[1:-1]] for line in text.splitlines() if "\u2502" in line]
