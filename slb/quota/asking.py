"""Questions to a router of which there may be several instances: the first that answers is asked again."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Protocol

import orjson
from aiohttp import ClientError, ClientSession, ClientTimeout

from slb.authorities import client_context
from slb.backoff import Backoff
from slb.errors import SlbError
from slb.names import url_parts

_FIELDS = {
    "/schedule": ({"model_backend_id", "task_id"}, {"wait_for_ms"}),
    "/heartbeat": ({"ok"},),
    "/complete": ({"ok", "state"},),
    "/advice": ({"backpressure_score", "suggested_parallelism"},),
    "/tasks": ({"tasks"},),
}
"""By path, what a router's answer has: one of these."""


class RouterUnreachable(SlbError):
    """No instance answered within the patience. The message names the last fault of each."""


class CallRefused(SlbError):
    """The router refused the request: asking again cannot help. `reason`: the error's name, such as
    `estimate_exceeds_limit`; `no_router` where something else answers."""

    def __init__(self, status: int, reason: str, detail: str) -> None:
        super().__init__(f"{status} {reason}: {detail}")
        self.status = status
        self.reason = reason
        self.detail = detail


@dataclass(frozen=True, slots=True)
class Persistence:
    """How long to try; seconds. `timeout`: of one question. Between rounds over all instances a pause follows, from
    `first_pause`, doubled up to `last_pause`, shortened by a random share; the end is after `patience`."""

    timeout: float = 5.0
    first_pause: float = 0.1
    last_pause: float = 5.0
    patience: float = 60.0


class Asking(Protocol):
    """How a question reaches the router; `open` comes before the first, `close` after the last."""

    def open(self) -> None: ...

    async def close(self) -> None: ...

    async def ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any: ...


class Instances:
    """`urls` are the instances' API addresses, such as `http://127.0.0.1:8081`; those with `https://` are verified
    by the authorities in the file `ca`, or by the machine's. Raises ValueError for others, ConfigError."""

    def __init__(
        self,
        urls: Sequence[str],
        token: str | None,
        persistence: Persistence,
        rng: Random,
        ca: str | Path | None = None,
    ) -> None:
        for url in urls:
            url_parts(url)
        self._urls = [url.rstrip("/") for url in urls]
        if not self._urls:
            raise ValueError("a router needs at least one URL")
        is_https = any(url.startswith("https://") for url in self._urls)
        self._tls = client_context(ca) if is_https else True
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._persistence = persistence
        self._timeout = ClientTimeout(total=persistence.timeout)
        self._rng = rng
        self._at = rng.randrange(len(self._urls))  # or all callers would ask the first

    def open(self) -> None:
        """To be called within a running loop, before anything is asked."""
        self._session = ClientSession(headers=self._headers, timeout=self._timeout)

    async def close(self) -> None:
        await self._session.close()

    async def ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """The JSON answered. Raises CallRefused, RouterUnreachable."""
        clock = asyncio.get_running_loop().time
        given_up = clock() + self._persistence.patience
        persistence = self._persistence
        backoff = Backoff(persistence.first_pause)
        while True:
            faults: list[str] = []
            last = self._at  # the one that answered last is asked first
            for at in (*range(last, len(self._urls)), *range(last)):
                try:
                    answer = await self._once(self._urls[at], method, path, body)
                except _Unanswered as unanswered:
                    faults.append(f"{self._urls[at]}: {unanswered}")
                else:
                    self._at = at
                    return answer
            pause = backoff.pause(clock(), persistence.first_pause, persistence.last_pause, is_calm=False)
            if clock() + pause > given_up:
                raise RouterUnreachable(f"{method} {path}: {'; '.join(faults)}")
            await asyncio.sleep(pause * self._rng.uniform(0.5, 1.0))

    async def _once(self, url: str, method: str, path: str, body: Mapping[str, Any] | None) -> Any:
        try:
            async with self._session.request(method, url + path, json=body, ssl=self._tls) as reply:
                answer = _judged(reply.status, await reply.read())
        except (ClientError, OSError, TimeoutError) as error:
            raise _Unanswered(str(error) or type(error).__name__) from None
        if not _is_a_routers(answer, path):
            raise CallRefused(reply.status, "no_router", f"what answers at {url} is no quota router")
        return answer


class _Unanswered(Exception):
    """Another instance, or the same one later, may answer."""


def _is_a_routers(answer: Mapping[str, Any], path: str) -> bool:
    known = _FIELDS.get(path.partition("?")[0])
    return known is None or any(fields <= answer.keys() for fields in known)


def _judged(status: int, content: bytes) -> Any:
    try:
        answer = orjson.loads(content)
    except orjson.JSONDecodeError:
        answer = None
    if status >= 500 or (status < 400 and not isinstance(answer, dict)):
        raise _Unanswered(f"{status} {content[:200].decode(errors='replace')}")
    if status >= 400:
        body = answer if isinstance(answer, dict) else {}
        raise CallRefused(status, str(body.get("error", "refused")), str(body.get("detail", "")))
    return answer
