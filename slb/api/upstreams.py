"""/upstreams and /upstreams/<member>: what is known of upstreams, wherever they are routed to."""

import math
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from operator import itemgetter
from urllib.parse import quote

import structlog
from aiohttp import web
from pydantic import ConfigDict

from slb.api.bodies import body_of, read_json
from slb.api.callers import named
from slb.api.changes import in_words, note
from slb.api.endpoints import Endpoint, change, followed, is_dry_run, not_written
from slb.api.parts import ApiParts
from slb.api.replies import json_reply
from slb.api.shapes import LastOf, UpstreamExplained, UpstreamShown, UpstreamsListed
from slb.api.show_route import leases_by, show_attributes
from slb.api.silent import agreed, silence
from slb.balance.eligible import is_available
from slb.balance.upstream import LiveUpstream
from slb.control.slices import Slices
from slb.errors import BAD_REQUEST, NO_ROUTE, REDIS_DOWN, Refused
from slb.model import UpstreamAttributes
from slb.names import normal_member
from slb.routing.mirror import Mirror
from slb.routing.table import Route

_log = structlog.get_logger("slb.api")


class UpstreamChanges(UpstreamAttributes):
    """What is to change; null means the default. `drain`: nothing new is sent there, what runs there goes on."""

    model_config = ConfigDict(strict=True)

    drain: bool | None = None


class UpstreamsEndpoint:
    """An upstream is named by its address, `10.0.0.1:80` or `https://gpu-1:443`, slashes as they are or escaped."""

    def __init__(self, parts: ApiParts) -> None:
        self._parts = parts
        self._since = time.monotonic()

    def endpoints(self) -> list[Endpoint]:
        path, refused = "/upstreams/{member}", (BAD_REQUEST,)
        return [
            Endpoint(
                "GET", "/upstreams", self.show_all, UpstreamsListed, None, refused, ("read",), query=("silent",)
            ),
            Endpoint(
                "GET",
                path,
                self.show,
                UpstreamExplained,
                None,
                (*refused, NO_ROUTE),
                ("read",),
                query=("besides",),
            ),
            change("PATCH", path, self.patch, UpstreamExplained, UpstreamChanges, (NO_ROUTE, REDIS_DOWN)),
        ]

    async def show_all(self, request: web.Request) -> web.Response:
        """Every upstream, and when it was last found alive."""
        # With `silent`, those that neither a check nor a request has found alive for so many seconds; of a
        # supervisor, in no worker.
        seconds = _seconds(request.query.get("silent", "0"))
        answers = await self._parts.workers_answers(f"/upstreams?silent={seconds:g}")
        # One that does not answer agrees on none.
        elsewhere = [answer or UpstreamsListed(instances=[], upstreams=[]) for answer in answers]
        ids = [self._parts.instances.info.id, *(each for answer in elsewhere for each in answer["instances"])]
        found = agreed([await self._silent(seconds), *(answer["upstreams"] for answer in elsewhere)])
        return json_reply(UpstreamsListed(instances=ids, upstreams=found))

    async def _silent(self, seconds: float) -> list[UpstreamShown]:
        mirror, slices = self._parts.mirror, Slices()
        routes: defaultdict[str, list[str]] = defaultdict(list)
        for path, record in sorted(mirror.records.items()):
            for member in record.members:
                routes[member].append(path)
            await slices.rest()
        found: list[UpstreamShown] = []
        for member, paths in routes.items():
            live = mirror.upstream(member)
            if live is not None and silence(shown := self._of(live, paths)) >= seconds:
                found.append(shown)
            await slices.rest()
        return found

    async def show(self, request: web.Request) -> web.Response:
        """One upstream, and the routes that name it.

        `last_of` has the routes that would be left without one that takes requests, were it drained; with
        `besides`, upstreams with commas between them, were these drained too.
        """
        besides = frozenset(normal_member(each) for each in request.query.get("besides", "").split(",") if each)
        return json_reply(await self._explained(known_member(self._parts.mirror, request), besides))

    async def patch(self, request: web.Request) -> web.Response:
        """Drain it, weigh it.

        With `drain` nothing new is sent there, on any route; null takes an attribute back to its default. `last_of`
        of the answer has the routes in which no other upstream takes requests.
        """
        member = known_member(self._parts.mirror, request)
        body = body_of(UpstreamChanges, await read_json(request, self._parts.settings.head_timeout))
        if is_dry_run(request):
            return not_written()
        written = body.model_dump(exclude_unset=True)
        changes = {name: _text(value) for name, value in written.items()}
        await self._parts.registry.patch_upstream(member, changes)
        _log.info("upstream_changed", upstream=member, **written, **named(request))
        self._note(request, member, written)
        status = await followed(self._parts, lambda mirror: _follows(mirror, member, changes))
        return json_reply(await self._explained(member), status)

    def _note(self, request: web.Request, member: str, written: Mapping[str, object]) -> None:
        if "drain" in written:
            note(self._parts, request, "drained" if written["drain"] else "undrained", member)
        if others := in_words({name: value for name, value in written.items() if name != "drain"}):
            note(self._parts, request, "attributes_changed", member, others)

    async def _explained(self, member: str, besides: Collection[str] = ()) -> UpstreamExplained:
        query = f"?besides={quote(','.join(besides))}" if besides else ""
        answers = await self._parts.workers_answers(f"/upstreams/{quote(member, safe='')}{query}")
        mirror = self._parts.mirror
        live, routes = mirror.upstream(member), mirror.routes_of([member])
        if live is None:
            raise Refused(NO_ROUTE, f"no route names {member}")
        paths = sorted(route.path for route in routes)
        known = [answer for answer in answers if answer is not None]
        (shown,) = agreed([[self._of(live, paths)], *([answer] for answer in known)])
        leases = await self._parts.registry.leases([(path, member) for path in shown["routes"]])
        last_of = _last_in([_last_of(routes, {member, *besides}), *(answer["last_of"] for answer in known)])
        return {**shown, "leases": leases_by(shown["routes"], leases), "last_of": last_of}

    def _of(self, live: LiveUpstream, routes: Sequence[str]) -> UpstreamShown:
        now = time.monotonic()
        alive_at = now if live.passing else max(live.answered_at, live.passed_at)
        return {
            **show_attributes(live),
            "routes": list(routes),
            "alive_ago": round(now - alive_at, 3) if alive_at else None,
            "known_for": round(now - max(live.seen, self._since), 3),
            "failing": bool(live.failures or live.down or not live.available),
        }


def known_member(mirror: Mirror, request: web.Request) -> str:
    """The member the request names. Raises InvalidName, and Refused where no route names it."""
    member = normal_member(request.match_info["member"])
    if not mirror.uses(member):
        raise Refused(NO_ROUTE, f"no route names {member}")
    return member


def _last_of(routes: Iterable[Route], leaving: Collection[str]) -> list[LastOf]:
    found: list[LastOf] = []
    for route in routes:
        others = [each for each in route.upstreams if each.member not in leaving]
        if not any(is_available(each, route.settings) and not _owes_an_answer(each) for each in others):
            found.append({"path": route.path, "others": len(others)})
    return found


def _owes_an_answer(upstream: LiveUpstream) -> bool:
    """Whether nothing has been answered well there since its last failure."""
    return upstream.on_probation or upstream.failures > 0


def _last_in(answers: Iterable[Sequence[LastOf]]) -> list[LastOf]:
    """The routes of any answer: each process finds for itself what is down or ejected."""
    return sorted({each["path"]: each for answer in answers for each in answer}.values(), key=itemgetter("path"))


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds < math.inf:
        raise Refused(BAD_REQUEST, "silent: has to be a number of seconds")
    return seconds


def _text(value: object) -> str | None:
    return None if value is None or value is False else str(value).lower() if value is True else str(value)


def _follows(mirror: Mirror, member: str, changes: Mapping[str, str | None]) -> bool:
    stored = mirror.attributes.get(member, {})
    return all(stored.get(name) == value for name, value in changes.items())
