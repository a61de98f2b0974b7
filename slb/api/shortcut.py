"""A short way for the few requests that come by the thousand: callers of the quota router ask, wait and ask again.
aiohttp takes ten times as long for such a request as the decision itself. So the plainest are read here: a whole
POST to one of a few paths, its head in one piece, from an allowed caller. Heads repeat on kept-alive connections:
each distinct one is parsed once. All else goes to aiohttp, with the rest of its connection."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Collection, Mapping
from email.utils import formatdate
from http import HTTPStatus
from itertools import count
from typing import Any, NamedTuple
from uuid import uuid4

from aiohttp import hdrs
from multidict import CIMultiDict, CIMultiDictProxy

from slb.answers import dumped
from slb.api.auth import check_caller, check_rights, keyring_of
from slb.api.replies import REQUEST_ID, Answered, OnAnswer, failure, request_id_of
from slb.config import Settings
from slb.errors import Refused

_LONGEST_HEAD, _LONGEST_BODY, _MOST_HEADS = 4096, 65_536, 1024
_HEAD = re.compile(
    rb"POST (/[a-z]{1,32}+) HTTP/1\.1\r\n((?:[!#$%&'*+\-.^_`|~0-9A-Za-z]{1,64}+:[ -~]*+\r\n){1,32})\r\n"
)
"""There is one way to read a line, so that thirty of them cannot be read in 2^30 ways."""
_NOT_PLAIN = frozenset({"transfer-encoding", "expect", "upgrade", "trailer", "te", "content-encoding"})
_LENGTH = re.compile(r"[0-9]{1,5}")

Handler = Callable[[bytes], Awaitable[Any]]  # body to what is answered as JSON. Raises Refused, RedisUnavailable


class _Head(NamedTuple):
    path: str
    length: int
    request_id: str
    token: str


class Asked(NamedTuple):
    """`token`: the name of the caller's."""

    path: str
    body: bytes
    request_id: str
    token: str


class Shortcut:
    """`handlers`, and the rights of which a caller needs one, by path."""

    def __init__(
        self,
        handlers: Mapping[str, Handler],
        settings: Callable[[], Settings],
        on_answer: OnAnswer,
        rights: Mapping[str, Collection[str]],
    ) -> None:
        self._rights = rights
        self._handlers = handlers
        self._settings = settings
        self._keyring = keyring_of(settings)
        self._on_answer = on_answer
        self._heads: dict[tuple[bytes, str], _Head | None] = {}
        self._heads_by: Settings | None = None
        self._ids = count(int(uuid4().hex[:16], 16) << 64)
        self._date = ""
        self._date_at = -1.0

    def read(self, data: bytes, remote: str) -> Asked | None:
        """`data` as one whole request; None where aiohttp has to read it."""
        end = data.find(b"\r\n\r\n", 0, _LONGEST_HEAD) + 4
        if end < 4:
            return None
        head = self._known(data[:end], remote)
        if head is None or len(data) != end + head.length:
            return None
        return Asked(head.path, data[end:], head.request_id or f"{next(self._ids):032x}", head.token)

    async def answer(self, asked: Asked, remote: str) -> bytes:
        loop = asyncio.get_running_loop()
        started = loop.time()
        reason, extra = "", ""
        try:
            status, body = 200, dumped(await self._handlers[asked.path](asked.body))
        except Exception as error:  # noqa: BLE001 -- the last net; what is unexpected is logged
            refused = failure(error, "POST", asked.path, asked.request_id)
            status, body, reason = refused.status, refused.content, refused.name
            if hdrs.RETRY_AFTER in refused.headers:
                extra = f"{hdrs.RETRY_AFTER}: {refused.headers[hdrs.RETRY_AFTER]}\r\n"
        now = loop.time()
        about = asked.request_id, remote, now - started, asked.token
        self._on_answer(Answered("POST", asked.path, status, reason, *about))
        head = (
            f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\nContent-Type: application/json\r\n{extra}"
            f"Content-Length: {len(body)}\r\nDate: {self._today(now)}\r\nServer: slb\r\n"
            f"{REQUEST_ID}: {asked.request_id}\r\n\r\n"
        )
        return head.encode() + body

    def _known(self, data: bytes, remote: str) -> _Head | None:
        settings = self._settings()
        if settings is not self._heads_by or len(self._heads) >= _MOST_HEADS:
            self._heads.clear()  # another token may hold now
            self._heads_by = settings
        key = data, remote
        if key not in self._heads:
            self._heads[key] = self._parsed(data, remote)
        return self._heads[key]

    def _parsed(self, data: bytes, remote: str) -> _Head | None:
        match = _HEAD.fullmatch(data)
        path = match[1].decode() if match else ""
        if match is None or path not in self._handlers:
            return None
        fields: CIMultiDict[str] = CIMultiDict()
        for line in match[2].decode().split("\r\n")[:-1]:
            name, _, value = line.partition(":")
            fields.add(name, value.strip())
        length = fields.get(hdrs.CONTENT_LENGTH, "")
        if not _is_plain(fields) or not _LENGTH.fullmatch(length) or int(length) > _LONGEST_BODY:
            return None
        try:
            holder = check_caller(remote, CIMultiDictProxy(fields), self._keyring())
            check_rights(holder, self._rights[path])
        except Refused:
            return None
        return _Head(path, int(length), request_id_of(fields) if REQUEST_ID in fields else "", holder.name)

    def _today(self, now: float) -> str:
        if now - self._date_at >= 1 or not self._date:
            self._date, self._date_at = formatdate(usegmt=True), now
        return self._date


def _is_plain(fields: CIMultiDict[str]) -> bool:
    if not _NOT_PLAIN.isdisjoint(name.lower() for name in fields):
        return False
    if any(len(fields.getall(name, ())) != 1 for name in (hdrs.HOST, hdrs.CONTENT_LENGTH)):
        return False
    connection = fields.getall(hdrs.CONNECTION, ["keep-alive"])
    return len(connection) == 1 and connection[0].lower() == "keep-alive"
