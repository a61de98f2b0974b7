"""The few plain requests the bench itself makes, on the loopback."""

import json
from collections.abc import Iterable
from contextlib import closing
from http.client import HTTPConnection, HTTPException

from bench.processes import POLL_SECONDS, BenchError, Running, wait_until

ASK_SECONDS = 2.0


def ask(port: int, path: str) -> tuple[int, str]:
    """GET: status and `X-Upstream`. Status 0 where there is no whole reply."""
    try:
        status, _, upstream = _fetch("GET", port, path)
        return status, upstream
    except (OSError, HTTPException):
        return 0, ""


def wait_until_served(
    ports: Iterable[int], path: str, running: Running, seconds: float, every: float = POLL_SECONDS
) -> None:
    """Until all of them answer a GET with 200. Raises BenchError where `running` ends first, or time runs out."""
    for port in ports:
        wait_until(lambda port=port: ask(port, path)[0] == 200, running, seconds, f"GET {path}", every)  # type: ignore[misc]


def get_text(port: int, path: str) -> str:
    """GET: the reply's text. Raises BenchError where there is none in time."""
    try:
        return _fetch("GET", port, path)[1]
    except (OSError, HTTPException) as error:
        raise BenchError(f"GET {path}: {error or type(error).__name__}") from None


def text_or_nothing(port: int, path: str) -> str:
    """The same; empty where there is none in time."""
    try:
        return get_text(port, path)
    except BenchError:
        return ""


def send_json(method: str, port: int, path: str, body: object) -> None:
    """Raises BenchError where the status is not 200 to 299."""
    status, text, _ = _fetch(method, port, path, json.dumps(body))
    if not 200 <= status < 300:
        raise BenchError(f"{method} {path} answered {status}: {text}")


def _fetch(method: str, port: int, path: str, body: str | None = None) -> tuple[int, str, str]:
    """Status, text and `X-Upstream`."""
    with closing(HTTPConnection("127.0.0.1", port, timeout=ASK_SECONDS)) as connection:
        connection.request(method, path, body, {"Content-Type": "application/json"} if body else {})
        reply = connection.getresponse()
        return reply.status, reply.read().decode(errors="replace"), reply.headers.get("X-Upstream", "")
