"""The peers' configurations, filled in."""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from bench.errors import BenchError
from bench.peers import PEERS, SLB, Peer, Site, register_at_slb

Script = Callable[[str, object], int]


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path, 8000, 8001, (9001, 9002), "someone")


@pytest.mark.parametrize("peer", PEERS, ids=lambda peer: peer.name)
def test_no_mark_is_left_in_command_or_configuration(peer: Peer, site: Site) -> None:
    argv = peer.command("/bin/program", site)
    written = [(site.home / name).read_text() for name in peer.configs]
    assert not re.search(r"@\w+@", " ".join([*argv, *written, *peer.environment_at(site).values()]))


@pytest.mark.parametrize("peer", [peer for peer in PEERS if peer is not SLB], ids=lambda peer: peer.name)
def test_every_peer_listens_on_the_loopback_and_has_both_upstreams(peer: Peer, site: Site) -> None:
    peer.command("/bin/program", site)
    written = "".join((site.home / name).read_text() for name in peer.configs)
    assert {"127.0.0.1", "8000", "9001", "9002"} <= set(re.findall(r"[\d.]+", written))


def test_slb_keeps_its_data_in_the_measurement_s_own_folder(site: Site) -> None:
    assert SLB.environment_at(site) == {"SLB_DATA_DIR": f"{site.home}/data"}
    assert SLB.command("slb", site)[1:4] == ["serve", "--listen", "127.0.0.1:8000"]


def test_an_unknown_mark_is_an_error(site: Site) -> None:
    with pytest.raises(KeyError, match="colour"):
        site.fill("paint it @colour@")


@pytest.fixture
def scripted_api(site: Site) -> Iterator[Callable[[Script], Site]]:
    """Serve an API whose every answer's status is what a script sets for path and body."""
    servers: list[ThreadingHTTPServer] = []

    def serve(script: Script) -> Site:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(script(self.path, None))
                self.end_headers()

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                self.send_response(script(self.path, body))
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                """Log nothing."""

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        servers.append(server)
        return replace(site, api_port=server.server_port)

    yield serve
    for server in servers:
        server.shutdown()
        server.server_close()


def test_both_upstreams_are_registered_at_slb(scripted_api: Callable[[Script], Site]) -> None:
    registered: list[object] = []

    def script(path: str, body: object) -> int:
        registered.extend([] if body is None else [body])
        return 200

    assert register_at_slb(scripted_api(script))
    assert registered == [{"path": "/", "target": f"127.0.0.1:{port}"} for port in (9001, 9002)]


def test_nothing_is_registered_before_slb_is_ready(scripted_api: Callable[[Script], Site]) -> None:
    asked: list[str] = []

    def script(path: str, body: object) -> int:
        asked.append(path)
        return 503

    assert not register_at_slb(scripted_api(script))
    assert asked == ["/readyz"]


def test_a_refused_registration_is_an_error_with_its_status(scripted_api: Callable[[Script], Site]) -> None:
    site = scripted_api(lambda path, body: 400 if body else 200)
    with pytest.raises(BenchError, match="/register answered 400"):
        register_at_slb(site)
