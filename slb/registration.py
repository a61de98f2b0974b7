"""A registration that lasts as long as what it is of: made again before its lease ends, taken back at the end."""

import asyncio
import json
import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Self

from aiohttp import ClientError, ClientSession, ClientTimeout, InvalidURL

from slb.errors import SlbError, no_answer

_FIRST_RETRY = 0.1
_LAST_RETRY = 10.0
"""Seconds between two attempts: the first soon after each other, for an slb that starts beside this; none given up,
for an upstream that did would run on and never be sent anything, and whoever started both may start slb last."""
_RENEWALS = 3
"""In each ttl: one may be lost, and another one be late."""
_SHORTEST_CALL, _LONGEST_CALL = 2.0, 10.0
_SHOWN = 200
"""Characters of an answer that is no slb's."""
_log = logging.getLogger("slb.registration")


class RegistrationRefused(SlbError):
    """The slb asked understood the registration and said no; asking again cannot help."""


class Registration:
    """Registers an upstream at an slb and keeps it registered:

        async with Registration("http://slb:8081", "/p1", "10.0.0.5:8000", ttl=30):
            await serve()

    `url`: the API of an slb, or those of several, of which any does. `target`: the upstream as slb reaches it.
    `ttl`: seconds after which the fleet takes it out where it is not renewed; None, and it stands for good.
    `attributes`: `weight`, `slots`, `zone`, `node`. An slb that is not there yet, or has no Redis, is asked again;
    why is logged once, and again where it is another reason.
    """

    def __init__(
        self,
        url: str | Sequence[str],
        path: str,
        target: str,
        *,
        ttl: float | None = 30.0,
        token: str | None = None,
        attributes: Mapping[str, int | str] | None = None,
    ) -> None:
        self._urls = [f"{each.rstrip('/')}/register" for each in ([url] if isinstance(url, str) else url)]
        self._named = {"path": path, "target": target}
        self._body = {**self._named, **(attributes or {}), **({"ttl": ttl} if ttl else {})}
        self._ttl = ttl
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._known = False
        self._keeping: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        """Returns once it is registered. Raises RegistrationRefused."""
        await self.register()
        self._keeping = asyncio.create_task(self._renew())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._keeping is not None:
            self._keeping.cancel()
            with suppress(asyncio.CancelledError):
                await self._keeping
        await self.deregister()

    async def keep(self) -> None:
        """Register, and renew until cancelled; without a ttl, just register. Raises RegistrationRefused."""
        await self.register()
        await self._renew()

    async def register(self) -> None:
        """Until it is done. Raises RegistrationRefused."""
        delay, told = _FIRST_RETRY, ""
        while fault := await self._call("POST"):
            if fault != told:
                _log.warning("not registered yet, trying again until it is: %s", fault)
                told = fault
            await asyncio.sleep(delay)
            delay = min(2 * delay, _LAST_RETRY)
        self._known = True
        _log.info("registered %s for %s", self._named["target"], self._named["path"])

    async def deregister(self) -> None:
        """Once: whoever leaves cannot wait for an slb that is not there. One that was never told of this upstream
        may have heard all the same, where only its answer was lost."""
        try:
            fault = await self._call("DELETE")
        except RegistrationRefused as refused:
            fault = str(refused)
        if fault and self._known:
            _log.warning("not deregistered: %s", fault)
        elif not fault:
            _log.info("deregistered %s from %s", self._named["target"], self._named["path"])

    async def _renew(self) -> None:
        """A refusal may pass now: the same was taken before."""
        told, delay = "", _FIRST_RETRY
        while self._ttl:
            await asyncio.sleep(min(delay, self._ttl / _RENEWALS) if told else self._ttl / _RENEWALS)
            try:
                fault = await self._call("POST") or ""
            except RegistrationRefused as refused:
                fault = str(refused)
            if fault != told:
                _log.warning("not renewed, trying again: %s", fault) if fault else _log.info("renewed again")
            told, delay = fault, 2 * delay if fault else _FIRST_RETRY

    async def _call(self, method: str) -> str | None:
        """Why the call has to be made again, or None; the one that took it is asked first the next time. Raises
        RegistrationRefused."""
        faults: list[str] = []
        for url in self._urls:
            fault = await self._call_at(url, method)
            if fault is None:
                self._urls = [url, *(each for each in self._urls if each != url)]
                return None
            faults.append(fault)
        return "; ".join(faults)

    async def _call_at(self, url: str, method: str) -> str | None:
        body = self._body if method == "POST" else self._named
        longest = max(_SHORTEST_CALL, self._ttl / _RENEWALS) if self._ttl else _LONGEST_CALL
        timeout = ClientTimeout(total=min(longest, _LONGEST_CALL))
        try:
            async with (
                ClientSession(timeout=timeout, headers=self._headers) as session,
                session.request(method, url, json=body) as reply,
            ):
                said = f"{reply.status} {_reason(await reply.text())}"
                if 400 <= reply.status < 500:
                    raise RegistrationRefused(f"{url} refused the registration: {said}")
                return f"{url} answered {said}" if reply.status >= 500 else None
        except InvalidURL:
            raise RegistrationRefused(f"{url!r} is not a URL such as http://127.0.0.1:8081/register") from None
        except (ClientError, OSError, TimeoutError) as error:
            return f"{url}: {no_answer(error)}"


def _reason(text: str) -> str:
    """What an slb says of a refusal, without the id that is another in each."""
    try:
        said = json.loads(text)
        return f"{said['error']}: {said['detail']}"
    except (ValueError, TypeError, LookupError):  # what answers is no slb, or something before it
        return " ".join(text.split())[:_SHOWN]
