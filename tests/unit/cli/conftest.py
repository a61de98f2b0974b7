"""`slb` run inside the tests' process, and an API of a few lines for it to ask."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from slb.cli import main


@pytest.fixture
def clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No settings of the user that runs the tests."""
    for name in ("SLB_CONFIG", "SLB_REDIS_URL", "SLB_LISTEN", "SLB_API_TOKEN", "SLB_TOKEN", "SLB_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))


@pytest.fixture
def any_ports(clean_environment: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """On this machine the usual ones may be taken."""
    for name in ("SLB_LISTEN", "SLB_API"):
        monkeypatch.setenv(name, "127.0.0.1:0")


class Slb:
    """Runs `slb` in this process."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch = monkeypatch
        self._capsys = capsys

    def __call__(self, *arguments: str) -> tuple[int, str, str]:
        """Exit code, stdout, stderr."""
        self._monkeypatch.setattr("sys.argv", ["slb", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        code = ended.value.code
        assert code is None or isinstance(code, int)
        printed = self._capsys.readouterr()
        return code or 0, printed.out, printed.err


@pytest.fixture
def slb(clean_environment: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Slb:
    return Slb(monkeypatch, capsys)


class Server(ThreadingHTTPServer):
    """Gives every client the same `answer` with the same `status`; keeps what it was `asked` for and `sent`, and
    the tokens it was `shown`. While there are `events`, a stream has the first list of them."""

    daemon_threads = False  # so that leaving it waits for those that serve, whose sockets would be left open

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answer: Any = {}
        self.status = 200
        self.events: list[Any] = []
        self.asked: list[str] = []
        self.sent: list[Any] = []
        self.shown: list[str | None] = []
        self.url = f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def _reply(self) -> None:
        text = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.asked.append(f"{self.command} {self.path}")
        self.server.shown.append(self.headers.get("Authorization"))
        self.server.sent.append(json.loads(text) if text else None)
        body = json.dumps(self.server.answer).encode()
        streams = self.path.startswith("/queue/events") and bool(self.server.events)
        self.send_response(200 if streams else self.server.status)
        if streams:
            self.send_header("Content-Type", "text/event-stream; charset=utf-8")
            event = self.server.events.pop(0)
            body = b": \n\n" + b"".join(
                f"id: 1\nevent: {each['status']}\ndata: {json.dumps(each)}\n\n".encode() for each in event
            )
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _reply  # noqa: N815 - the library's names

    def log_message(self, *_: Any) -> None:
        """Tests are quiet."""


@pytest.fixture
def server(slb: Slb, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """Found by SLB_URL."""
    with Server() as serving:
        thread = threading.Thread(target=serving.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        monkeypatch.setenv("SLB_URL", serving.url)
        yield serving
        serving.shutdown()
        thread.join()
