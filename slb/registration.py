"""Keeps an upstream registered: registers it, renews its lease until it leaves, and deregisters it then."""

import asyncio
import enum
import json
import logging
import math
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from aiohttp import ClientConnectorError, ClientError, ClientResponse, ClientSession, ClientTimeout
from pydantic import ValidationError

from slb.authorities import client_context
from slb.backoff import Backoff
from slb.errors import ConfigError, InvalidName, SlbError, no_answer
from slb.model import MAX_TTL, MIN_TTL, UpstreamAttributes
from slb.names import normal_member, normal_path, url_parts

_RENEWALS = 3  # in each ttl: one may be lost, and another one be late
_LONGEST_CALL = 10.0
_LEAVING = 2.0  # seconds of one call, and of all attempts to deregister together
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 10.0  # seconds between attempts, doubled; there is no last one
_MOST_READ = 8192  # bytes of an answer: slb's repeats the path (at most 2,048) and the target
_log = logging.getLogger("slb.registration")
_sleep = asyncio.sleep


_SHOWN = 200  # characters that are logged of an answer that is not slb's
_PASSING = (408, 429)  # statuses below 500 after which the same call may be taken


class Kind(enum.Enum):
    """What came of a call."""

    CHANGED = "changed"  # the registration was added, or removed
    UNCHANGED = "unchanged"  # it stood before a POST, or did not before a DELETE
    REFUSED = "refused"  # the same call would be refused again: a 4xx, or the answer of a server that is not slb
    FAILED = "failed"  # the same call may be taken later: no answer, a 5xx, 408 or 429
    UNSENT = "unsent"  # as FAILED, and there was no connection: slb cannot have done what was asked


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of a call, and where it was not taken, why, with the URL."""

    kind: Kind
    why: str = ""

    @property
    def is_taken(self) -> bool:
        return self.kind in (Kind.CHANGED, Kind.UNCHANGED)


class RegistrationRefused(SlbError):
    """Every URL refused the registration; the same call would be refused again."""


class Registration:
    """Registers an upstream at an slb and keeps it registered:

        async with Registration("http://slb:8081", "/p1", "10.0.0.5:8000", ttl=30):
            await serve()

    `url`: the API of an slb, or of several instances: the next one is asked where one does not take the call.
    `target`: the upstream as slb reaches it. `ttl`: seconds (5 to 86,400) after which slb takes the upstream out
    unless it is renewed; None: it stands for good. `ca`: a PEM file of the authorities that `https://` URLs are
    verified by, read at each call; None: the machine's. `attributes`: `weight`, `slots`, `zone`, `node`. Why it
    tries again is logged once, and again where the reason changes. Raises ConfigError, naming the argument.
    """

    def __init__(
        self,
        url: str | Sequence[str],
        path: str,
        target: str,
        *,
        ttl: float | None = 30.0,
        token: str | None = None,
        ca: str | Path | None = None,
        attributes: Mapping[str, int | str] | None = None,
    ) -> None:
        self._urls = deque(_endpoint(each) for each in ([url] if isinstance(url, str) else url))
        if not self._urls:
            raise ConfigError("url: there is none")
        self._named = _named(path, target)
        self._ttl = _checked_ttl(ttl)
        lease = {} if ttl is None else {"ttl": ttl}
        self._body = {**self._named, **_checked_attributes(attributes or {}), **lease}
        if token is not None and not token.isprintable():
            raise ConfigError("token: has characters that no header can carry")
        self._ca = ca
        if any(url.startswith("https://") for url in self._urls):
            client_context(ca)
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self.was_there = False
        """Whether it stood before it was registered by this."""
        self._may_stand = False
        """Whether a call was taken, or may have been by an slb whose answer was lost."""
        self._keeping: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        """Returns once it is registered. Raises RegistrationRefused."""
        try:
            await self.register()
        except BaseException:  # cancelled after slb took it, among others
            await self.deregister()
            raise
        self._keeping = asyncio.create_task(self.renew())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._keeping is not None:
            self._keeping.cancel()
            with suppress(asyncio.CancelledError):
                await self._keeping
        await self.deregister()

    async def keep(self) -> None:
        """Register, and renew until cancelled, or return at once where `ttl` is None. Raises
        RegistrationRefused."""
        await self.register()
        await self.renew()

    async def register(self) -> None:
        try:
            answer = await self._until_taken("not registered yet", is_first=True)
        except RegistrationRefused:
            await self.deregister()  # an earlier attempt, whose answer was lost, may have been taken
            raise
        self.was_there = answer.kind is Kind.UNCHANGED
        _log.info("registered %s", self)

    async def renew(self) -> None:
        """Keep what is registered, until cancelled; return at once where `ttl` is None."""
        while self._ttl is not None:
            await _sleep(self._ttl / _RENEWALS)
            answer = await self._until_taken("not renewed", is_first=False)
            if answer.kind is Kind.CHANGED:
                _log.warning("had been taken out, registered again: %s", self)

    async def deregister(self) -> bool:
        """One attempt at each URL, 2 s in all; none where none is needed. Whether it is known to be gone."""
        if not self._may_stand:
            return True
        answer = await self._ask_all("DELETE", _LEAVING)
        if not answer.is_taken:
            _log.warning("not deregistered: %s: %s", self, answer.why)
            return False
        self._may_stand = False
        if answer.kind is Kind.CHANGED:
            _log.info("deregistered %s", self)
        else:
            _log.info("was not registered any more: %s", self)
        return True

    async def leave_standing(self) -> None:
        """Let it stand for good, without renewals: one attempt at each URL, 2 s in all."""
        self._body.pop("ttl", None)
        answer = await self._ask_all("POST", _LEAVING)
        if not answer.is_taken:
            _log.warning("ends with its lease, though it was there before: %s: %s", self, answer.why)

    def __str__(self) -> str:
        return f"{self._named['target']} for {self._named['path']}"

    async def _until_taken(self, trouble: str, is_first: bool) -> Answer:
        """Ask until an slb takes it. Only the first call's refusal is final. Raises RegistrationRefused."""
        backoff, clock, logged = Backoff(_FIRST_PAUSE), asyncio.get_running_loop().time, ""
        longest = min(_LONGEST_PAUSE, self._round_time())
        while not (answer := await self._ask_all("POST", self._round_time())).is_taken:
            if is_first and answer.kind is Kind.REFUSED:
                raise RegistrationRefused(f"refused: {self}: {answer.why}")
            if answer.why != logged:
                _log.warning("%s, trying again: %s: %s", trouble, self, answer.why)
                logged = answer.why
            await _sleep(backoff.pause(clock(), _FIRST_PAUSE, longest, is_calm=False))
        if logged and not is_first:
            _log.info("renewed again: %s", self)
        return answer

    def _round_time(self) -> float:
        """Seconds to ask each URL once: not more than between two renewals."""
        return math.inf if self._ttl is None else self._ttl / _RENEWALS

    async def _ask_all(self, method: str, within: float) -> Answer:
        """Ask one URL after the other until one takes the call. REFUSED where all refuse, FAILED where any may take
        it later. A URL that does not take it goes last."""
        timeout = min(within / len(self._urls), _LONGEST_CALL)
        answers: list[Answer] = []
        for url in tuple(self._urls):
            answer = await self._ask(url, method, timeout)
            if answer.is_taken:
                return answer
            answers.append(answer)
            self._urls.rotate(-1)
        is_refused = all(answer.kind is Kind.REFUSED for answer in answers)
        return Answer(Kind.REFUSED if is_refused else Kind.FAILED, "; ".join(each.why for each in answers))

    async def _ask(self, url: str, method: str, timeout: float) -> Answer:
        stood, self._may_stand = self._may_stand, True  # until the answer is here: this may be cancelled
        answer = await self._call(url, method, timeout)
        if answer.kind in (Kind.REFUSED, Kind.UNSENT):
            self._may_stand = stood
        return answer

    async def _call(self, url: str, method: str, timeout: float) -> Answer:
        """On a new connection: an address that several instances share may lead to another one then."""
        body = self._body if method == "POST" else self._named
        try:
            tls = await asyncio.to_thread(client_context, self._ca) if url.startswith("https://") else True
            async with (
                ClientSession(timeout=ClientTimeout(total=timeout), headers=self._headers) as session,
                session.request(method, url, json=body, ssl=tls, allow_redirects=False) as reply,
            ):
                return judged(url, method, self._named, reply.status, await _start_of(reply))
        except TimeoutError:
            return Answer(Kind.FAILED, f"{url}: no answer within {timeout:.2g} s")
        except ClientConnectorError as error:
            return Answer(Kind.UNSENT, f"{url}: {no_answer(error)}")
        except ConfigError as error:  # the file of authorities is being replaced
            return Answer(Kind.UNSENT, f"{url}: {error}")
        except (ClientError, OSError) as error:
            return Answer(Kind.FAILED, f"{url}: {no_answer(error)}")


def _endpoint(url: str) -> str:
    try:
        host = url_parts(url).hostname or ""
        host.encode("idna")  # raises where the resolver would: a label that is empty or too long
    except ValueError:
        raise ConfigError(f"url: {url!r} is not a URL such as http://127.0.0.1:8081") from None
    return f"{url.rstrip('/')}/register"


def _named(path: str, target: str) -> dict[str, str]:
    try:
        return {"path": normal_path(path), "target": normal_member(target)}
    except InvalidName as error:
        raise ConfigError(f"path {path!r}, target {target!r}: {error}") from None


def _checked_ttl(ttl: float | None) -> float | None:
    is_number = isinstance(ttl, int | float) and not isinstance(ttl, bool)
    if ttl is None or (is_number and MIN_TTL <= ttl <= MAX_TTL):
        return ttl
    raise ConfigError(f"ttl: {ttl!r} is not a number of seconds from {MIN_TTL} to {MAX_TTL}")


def _checked_attributes(attributes: Mapping[str, int | str]) -> Mapping[str, int | str]:
    try:
        UpstreamAttributes.model_validate(dict(attributes), strict=True)
    except ValidationError as error:
        faults = (f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors())
        raise ConfigError(f"attributes: {'; '.join(faults)}") from None
    return attributes


async def _start_of(reply: ClientResponse) -> str:
    try:
        text = await reply.content.readexactly(_MOST_READ)
    except asyncio.IncompleteReadError as end:
        text = end.partial
    return text.decode(errors="replace")


def judged(url: str, method: str, named: Mapping[str, str], status: int, text: str) -> Answer:
    """What the answer of `url`, its status and the start of its body, means for a POST or DELETE of the
    registration `named`, whose path and target an slb repeats."""
    answer = _parsed(text)
    seen = f"answered {status} {_reason(answer, text)}"
    if status >= 500 or status in _PASSING:
        return Answer(Kind.FAILED, f"{url} {seen}")
    if status >= 400:
        return Answer(Kind.REFUSED, f"{url} {seen}")
    changed = answer.get("added" if method == "POST" else "removed")
    if isinstance(changed, bool) and named.items() <= answer.items():
        return Answer(Kind.CHANGED if changed else Kind.UNCHANGED)
    return Answer(Kind.REFUSED, f"{url} is not the API of an slb: it {seen}")


def _parsed(text: str) -> dict[str, Any]:
    try:
        answer = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return answer if isinstance(answer, dict) else {}


def _reason(answer: Mapping[str, Any], text: str) -> str:
    """slb's reason without the request id, which differs each time; the start of what another server answers."""
    if "error" in answer and "detail" in answer:
        return f"{answer['error']}: {answer['detail']}"
    return " ".join(text.split())[:_SHOWN]
