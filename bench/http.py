"""The few plain requests the bench itself makes: is it there yet, and who answered."""

import json
import socket
from http.client import HTTPConnection, HTTPException

from bench.errors import BenchError

ASK_SECONDS = 2.0


def ask(port: int, path: str) -> tuple[int, str]:
    """GET on the loopback: status and `X-Upstream`. Status 0 when nobody (whole) answers there."""
    connection = HTTPConnection("127.0.0.1", port, timeout=ASK_SECONDS)
    try:
        connection.request("GET", path)
        reply = connection.getresponse()
        reply.read()
        return reply.status, reply.headers.get("X-Upstream", "")
    except (OSError, HTTPException):
        return 0, ""
    finally:
        connection.close()


def get_text(port: int, path: str) -> str:
    """GET on the loopback: what the reply says. Raises BenchError where there is none in time."""
    connection = HTTPConnection("127.0.0.1", port, timeout=ASK_SECONDS)
    try:
        connection.request("GET", path)
        return connection.getresponse().read().decode()
    except (OSError, HTTPException) as error:
        raise BenchError(f"GET {path}: {error or type(error).__name__}") from None
    finally:
        connection.close()


def post_json(port: int, path: str, body: object) -> tuple[int, str]:
    """POST on the loopback: status and the reply's text."""
    return send_json("POST", port, path, body)


def send_json(method: str, port: int, path: str, body: object) -> tuple[int, str]:
    """The same with any method."""
    connection = HTTPConnection("127.0.0.1", port, timeout=ASK_SECONDS)
    try:
        connection.request(method, path, json.dumps(body), {"Content-Type": "application/json"})
        reply = connection.getresponse()
        return reply.status, reply.read().decode(errors="replace")
    finally:
        connection.close()


def free_ports(count: int) -> list[int]:
    """Ports the kernel says are free; all are held until the last is known, so that no two are the same."""
    held = [socket.socket() for _ in range(count)]
    try:
        for one in held:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in held]
    finally:
        for one in held:
            one.close()
