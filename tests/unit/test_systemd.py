"""What a service manager hears, by real datagram sockets, and the sockets that it passes on."""

import os
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from slb.listening import CannotListen
from slb.systemd import notify, notify_reloading, passed_sockets
from tests.support.systemd import as_systemd

_SHOW = """
import os
from slb.given_sockets import place_of
from slb.systemd import passed_sockets
for name, each in passed_sockets(os.environ):
    print(name, *place_of(each), os.get_inheritable(each.fileno()), each.getblocking())
print(len(passed_sockets(os.environ)), "LISTEN_FDS" in os.environ)
"""


@pytest.fixture(params=["a path", "an abstract name"])
def manager(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[socket.socket]:
    """Hears what is told to the address in NOTIFY_SOCKET."""
    if request.param == "an abstract name" and sys.platform != "linux":
        pytest.skip("only Linux has abstract names")
    name = f"slb-{secrets.token_hex(8)}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as heard:
        if request.param == "a path":
            monkeypatch.chdir(tmp_path)
            heard.bind(name)
            monkeypatch.setenv("NOTIFY_SOCKET", name)
        else:
            heard.bind(f"\0{name}")
            monkeypatch.setenv("NOTIFY_SOCKET", f"@{name}")
        heard.settimeout(10)
        yield heard


def test_each_fact_is_one_line_of_one_message(manager: socket.socket) -> None:
    notify(READY=1, MAINPID=7, STATUS="serves\nhere")
    assert manager.recv(1000) == b"READY=1\nMAINPID=7\nSTATUS=serves here"


def test_a_reload_is_told_with_the_time_of_the_monotonic_clock(manager: socket.socket) -> None:
    before = _now()
    notify_reloading()
    reloading, stamp = manager.recv(1000).decode().splitlines()
    assert reloading == "RELOADING=1"
    assert before <= int(stamp.removeprefix("MONOTONIC_USEC=")) <= _now()


def _now() -> int:
    """Microseconds."""
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000


def test_without_a_manager_nothing_is_told_and_one_that_is_gone_is_logged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    with capture_logs() as log:
        notify(READY=1)
    assert log == []
    monkeypatch.setenv("NOTIFY_SOCKET", "/nowhere/socket")
    with capture_logs() as log:
        notify(STOPPING=1)
    assert [line["event"] for line in log] == ["service_manager_not_told"]


def _passed(environ: dict[str, str], *sockets: socket.socket) -> list[str]:
    descriptors = [each.fileno() for each in sockets]
    command = [*as_systemd(*sockets), "-c", _SHOW]
    env = {**os.environ, "LISTEN_FDS": str(len(sockets)), **environ}
    return subprocess.run(
        command, env=env, pass_fds=descriptors, check=True, capture_output=True, text=True
    ).stdout.splitlines()


def test_sockets_are_found_with_their_names_and_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as one, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        other.bind(("127.0.0.1", 0))
        shown = _passed({"LISTEN_FDNAMES": "data"}, one, other)
        ports = [each.getsockname()[1] for each in (one, other)]
    assert shown == [
        f"data tcp 127.0.0.1 {ports[0]} False False",
        f" udp 127.0.0.1 {ports[1]} False False",
        "0 False",
    ]


@pytest.mark.parametrize("pid", ["", "1", "x"])
def test_what_was_passed_to_another_process_is_left(pid: str) -> None:
    environ = {"LISTEN_PID": pid, "LISTEN_FDS": "2"}
    assert passed_sockets(environ) == []
    assert environ == {"LISTEN_PID": pid, "LISTEN_FDS": "2"}


@pytest.mark.parametrize("count", ["", "-1", "9999", "251", "two", "\N{SUPERSCRIPT TWO}"])
def test_a_count_that_is_none_is_refused(count: str) -> None:
    with pytest.raises(CannotListen, match="LISTEN_FDS="):
        passed_sockets({"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": count})
