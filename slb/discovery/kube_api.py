"""Single calls of the Kubernetes API: a page of a list, and the events of a watch, bounded in bytes and time."""

import socket
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import orjson
from aiohttp import ClientResponse, ClientSession, ClientTimeout

from slb.discovery.kube_access import Credentials

LONGEST_LINE = 8 << 20
"""Bytes of one event of a watch: etcd keeps objects up to 1.5 MiB, and 1,000 endpoints take half of that."""

LARGEST_PAGE = 64 << 20
_PAGE = 50  # objects: some 100 endpoints each, so that reading one holds the event loop for a few milliseconds

_CONNECT, _PAGE_TIME, _LATE = 5.0, 30.0, 10.0  # seconds
_LONGEST_ADVICE = 300  # seconds of Retry-After
_SHOWN = 500  # characters of an error's message
_GONE = 410


class Answered(Exception):
    """The API answered, but with an error. `status`: of HTTP; `retry_after`: seconds, 0 for none."""

    def __init__(self, status: int, message: str, retry_after: float = 0.0) -> None:
        super().__init__(f"{status} {message}"[:_SHOWN])
        self.status = status
        self.retry_after = retry_after


class Expired(Exception):
    """The version to go on from is too old: the list is to be read again."""


class Broken(Exception):
    """What came is no answer of this API."""


class KubeApi:
    """`base`: its URL. Every method raises Answered, Expired and Broken, and what aiohttp raises where there is no
    answer; TimeoutError where it is late."""

    def __init__(self, session: ClientSession, base: str, credentials: Credentials) -> None:
        self._session = session
        self._base = base
        self._credentials = credentials

    async def page(self, path: str, selector: str, following: str = "") -> dict[str, Any]:
        """A page of the list at `path`; `following`: the `continue` of the page before."""
        asked = {"limit": str(_PAGE), **_said(labelSelector=selector), **_said(**{"continue": following})}
        timeout = ClientTimeout(total=_PAGE_TIME, sock_connect=_CONNECT)
        async with self._get(path, asked, timeout) as reply:
            await self._check(reply)
            found = _parsed(await _bounded(reply, LARGEST_PAGE))
        if not isinstance(found.get("items") or [], list) or not isinstance(found.get("metadata"), dict):
            raise Broken("a list without items or metadata")
        return found

    async def watch(
        self, path: str, selector: str, version: str, seconds: int, on_open: Callable[[], None]
    ) -> AsyncIterator[dict[str, Any]]:
        """Changes since `version`, until the server ends it after `seconds`. A server that is frozen does not: its
        end is awaited ten seconds longer at most. `on_open`: called where the server takes it."""
        asked = {
            "watch": "true",
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(seconds),
            **_said(labelSelector=selector),
        }
        timeout = ClientTimeout(total=seconds + _LATE, sock_connect=_CONNECT)
        async with self._get(path, asked, timeout) as reply:
            await self._check(reply)
            on_open()
            _keep_alive(reply)
            async for line in _lines(reply):
                event = _parsed(line)
                if event.get("type") == "ERROR":
                    raise _error_in(event.get("object"))
                yield event

    def _get(self, path: str, asked: Mapping[str, str], timeout: ClientTimeout) -> Any:
        return self._session.get(
            self._base + path,
            params=asked,
            headers={"Accept": "application/json", **self._credentials.headers()},
            timeout=timeout,
            ssl=self._credentials.context(),
            allow_redirects=False,
        )

    async def _check(self, reply: ClientResponse) -> None:
        if reply.status == 200:
            return
        if reply.status == 401:
            self._credentials.refused()
        try:
            message = str(_parsed(await _bounded(reply, LONGEST_LINE)).get("message") or "")
        except Broken:
            message = ""
        if reply.status == _GONE:
            raise Expired(message)
        raise Answered(reply.status, message or str(reply.reason), _retry_after(reply))


def _said(**names: str) -> dict[str, str]:
    return {name: text for name, text in names.items() if text}


def _error_in(status: object) -> Exception:
    """Of an ERROR event: a Status object."""
    said = status if isinstance(status, dict) else {}
    if said.get("code") == _GONE or said.get("reason") in ("Expired", "Gone"):
        return Expired(str(said.get("message")))
    return Answered(int(said.get("code") or 500), str(said.get("message") or "an error in the watch"))


def _retry_after(reply: ClientResponse) -> float:
    text = reply.headers.get("Retry-After", "")
    return float(min(int(text), _LONGEST_ADVICE)) if text.isascii() and text.isdecimal() and len(text) < 9 else 0.0


def _parsed(text: bytes) -> dict[str, Any]:
    try:
        found = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise Broken(f"no JSON: {error}") from None
    if not isinstance(found, dict):
        raise Broken("no JSON object")
    return found


async def _bounded(reply: ClientResponse, most: int) -> bytes:
    found = bytearray()
    async for piece in reply.content.iter_any():
        found += piece
        if len(found) > most:
            raise Broken(f"an answer of more than {most} bytes")
    return bytes(found)


async def _lines(reply: ClientResponse) -> AsyncIterator[bytes]:
    """Whole lines. What is left where the stream ends was cut, and is dropped: the next watch has it again."""
    kept = bytearray()
    async for piece in reply.content.iter_any():
        searched = len(kept)
        kept += piece
        while (end := kept.find(b"\n", searched)) >= 0 and end <= LONGEST_LINE:
            line = bytes(kept[:end])
            del kept[: end + 1]
            searched = 0
            yield line
        if max(len(kept), end) > LONGEST_LINE:
            raise Broken(f"an event of more than {LONGEST_LINE} bytes")


def _keep_alive(reply: ClientResponse) -> None:
    """Let the kernel find out that the server's machine is gone, within a minute."""
    connection = reply.connection
    transport = connection.transport if connection is not None else None
    sock = transport.get_extra_info("socket") if transport is not None else None
    if sock is None:
        return
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if sys.platform == "linux":
        for option, value in ((socket.TCP_KEEPIDLE, 30), (socket.TCP_KEEPINTVL, 10), (socket.TCP_KEEPCNT, 3)):
            sock.setsockopt(socket.IPPROTO_TCP, option, value)
