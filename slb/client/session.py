"""The session: a ClientSession that picks an upstream for each call by its path, and sends the call there."""

import os
import socket
import time
from collections.abc import Container, Mapping, Sequence
from random import Random
from typing import Any, Unpack, cast

from aiohttp import ClientResponse, ClientSession, ClientTimeout, DefaultResolver, DummyCookieJar, web
from aiohttp.typedefs import Handler, Middleware, StrOrURL
from yarl import URL

from slb.addresses import AddressRules
from slb.client import arguments
from slb.client.buffer import Buffer
from slb.client.call import Call, Calls
from slb.client.choice import WHOLE, Chooser, Traffic
from slb.client.connections import Connector
from slb.client.feed import FixedFeed, Followed, Surroundings, Upstreams, feed_of
from slb.client.options import HttpOptions, RequestOptions
from slb.client.refusals import SessionClosed
from slb.client.sending import Desk, send_once
from slb.errors import OVERLOADED, ConfigError
from slb.observe.outbound import OutboundMetrics
from slb.resolver import RuledResolver
from slb.routing.table import Table

_FIRST_TABLE = 5.0
_FIRST_TABLE_OR_FALLBACK = 1.0  # seconds that opening waits for a table


class Session:
    """`async with Session(redis_url=...)`, or `Session(upstreams=[...])`; then the verbs of an aiohttp session,
    with paths in the place of URLs. docs/client.md has every argument. Raises ConfigError, naming the argument, and
    TypeError for one that there is not. `http` arguments go to aiohttp's ClientSession."""

    def __init__(
        self,
        *,
        redis_url: str | None = None,
        upstreams: Upstreams | Followed | None = None,
        settings: Mapping[str, Any] | None = None,
        fallback: str | None = None,
        percentage: float = WHOLE,
        enabled: bool = True,
        max_outbound: int = 0,
        buffer_from: int | None = None,
        buffer_timeout: float = 1.0,
        max_connection_age: float = 60.0,
        node: str | None = None,
        zone: str = "",
        upstream_networks: Sequence[str] = (),
        data_dir: str | os.PathLike[str] | None = None,
        timeout: ClientTimeout | None = None,
        metrics: OutboundMetrics | None = None,
        rng: Random | None = None,
        **http: Unpack[HttpOptions],
    ) -> None:
        arguments.check_names(http, Session.__init__.__kwdefaults__ or ())
        arguments.check_kinds(redis_url=redis_url, settings=settings, fallback=fallback, node=node, zone=zone)
        arguments.check_kinds(timeout=timeout, metrics=metrics, rng=rng)
        self._rng = rng or Random()
        self._fallback = arguments.checked_fallback(fallback)
        self._traffic = Traffic(percentage, enabled, bool(self._fallback), self._rng)
        self.max_outbound, width = arguments.checked_width(max_outbound, buffer_from)
        """`outbound` at which no new work should be taken on; 0 is no cap."""
        self._buffer = Buffer(width, arguments.checked_seconds("buffer_timeout", buffer_timeout))
        self._max_age = arguments.checked_seconds("max_connection_age", max_connection_age)
        self._rules = AddressRules(arguments.checked_networks(upstream_networks), lambda: ())
        surroundings = Surroundings(settings or {}, zone, time.monotonic, self._rng)
        self._feed = feed_of(redis_url, upstreams, arguments.checked_folder(data_dir), self._rules, surroundings)
        own_node = os.environ.get("NODE_NAME") or socket.gethostname()  # the former by Kubernetes' downward API
        self._node = own_node if node is None else node
        self._timeout = timeout
        self._http_arguments = http
        self._http: ClientSession | None = None
        self._calls: Calls | None = None
        self.metrics = metrics or OutboundMetrics()
        self.metrics.out = lambda: self._buffer.out
        self.metrics.waiting = lambda: self._buffer.waiting
        self.metrics.rings = self._feed.rings.shown
        self.metrics.health = self._feed.metrics.health
        self.metrics.percentage = lambda: self._traffic.percentage if self._traffic.enabled else 0.0

    async def __aenter__(self) -> "Session":
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def open(self) -> None:
        """As `async with`. Raises RedisRefused, and SessionClosed where the session was open once."""
        if self._http is not None:
            raise SessionClosed("a session is opened once: make another")
        self._http = self._made_http()
        desk = Desk(
            self._http,
            self.metrics,
            time.monotonic,
            self._node,
            _shown(self._fallback),
            self._feed.witness,
            self._http_arguments.get("middlewares", ()),
        )
        chooser = Chooser(
            self._feed.mirror,
            self._traffic,
            self._fallback,
            self._rules,
            time.monotonic,
            self._rng,
            self._http_arguments.get("headers"),
        )
        try:
            await self._feed.open(_FIRST_TABLE_OR_FALLBACK if self._fallback else _FIRST_TABLE)
        except BaseException:
            await self.close()
            raise
        calls = self._calls = Calls(chooser, self._buffer, desk, self._timeout, self._rng)
        mirror = self._feed.mirror
        mirror.on_swap(lambda _: calls.follow(mirror.table.routes))

    async def close(self) -> None:
        """End all calls, each with SessionClosed, and stop following Redis. A second time does nothing."""
        calls, self._calls = self._calls, None
        if calls is not None:
            calls.close()
        if self._http is not None and not self._http.closed:
            try:
                await self._http.close()
            finally:  # given up halfway too: a second time does nothing
                await self._feed.close()

    @property
    def closed(self) -> bool:
        """Whether calls cannot be made: it is closed, or not open yet."""
        return self._calls is None

    @property
    def percentage(self) -> float:
        """The percentage of calls that go by the ring, the rest to the fallback. May be set; raises ConfigError."""
        return self._traffic.percentage

    @percentage.setter
    def percentage(self, value: float) -> None:
        self._traffic.set_percentage(value)

    @property
    def enabled(self) -> bool:
        """The off switch: False sends every call to the fallback. May be set at any time; raises ConfigError."""
        return self._traffic.enabled

    @enabled.setter
    def enabled(self, value: bool) -> None:
        self._traffic.set_enabled(value)

    @property
    def table(self) -> Table:
        """The routes as they are now; replaced, never changed."""
        return self._feed.mirror.table

    @property
    def outbound(self) -> int:
        return self._buffer.out + self._buffer.waiting

    @property
    def overloaded(self) -> bool:
        """Whether `outbound` is as much as `max_outbound` allows."""
        return bool(self.max_outbound) and self.outbound >= self.max_outbound

    def set_upstreams(self, upstreams: Upstreams) -> None:
        """Replace the upstreams of a session that was given a list. Raises ConfigError; then the old ones stay."""
        if not isinstance(self._feed, FixedFeed):
            raise ConfigError("upstreams: this session follows Redis or a service; they are changed there")
        self._feed.replace(upstreams)

    def request(
        self, method: str, path: StrOrURL, *, key: str | bytes | None = None, **options: Unpack[RequestOptions]
    ) -> Call:
        """`await` it for the response, or enter it by `async with`. `key`: calls of one key go to one upstream.
        Redirects are followed where `allow_redirects` is True, and never away from the upstreams.
        Raises what aiohttp raises, and CallRefused where the call was not sent."""
        if self._calls is None:
            return Call(_refused())
        options.setdefault("allow_redirects", False)
        return Call(self._calls.make(method, path, key, cast("dict[str, Any]", options)))

    def get(self, path: StrOrURL, *, key: str | bytes | None = None, **options: Unpack[RequestOptions]) -> Call:
        return self.request("GET", path, key=key, **options)

    def head(self, path: StrOrURL, *, key: str | bytes | None = None, **options: Unpack[RequestOptions]) -> Call:
        return self.request("HEAD", path, key=key, **options)

    def options(self, path: StrOrURL, *, key: str | bytes | None = None, **options: Unpack[RequestOptions]) -> Call:
        return self.request("OPTIONS", path, key=key, **options)

    def post(self, path: StrOrURL, *, key: str | bytes | None = None, **options: Unpack[RequestOptions]) -> Call:
        """Sent a second time only where no connection was made."""
        return self.request("POST", path, key=key, **options)

    def put(self, path: StrOrURL, *, key: str | bytes | None = None, **options: Unpack[RequestOptions]) -> Call:
        return self.request("PUT", path, key=key, **options)

    def patch(self, path: StrOrURL, *, key: str | bytes | None = None, **options: Unpack[RequestOptions]) -> Call:
        """Sent a second time only where no connection was made."""
        return self.request("PATCH", path, key=key, **options)

    def delete(self, path: StrOrURL, *, key: str | bytes | None = None, **options: Unpack[RequestOptions]) -> Call:
        return self.request("DELETE", path, key=key, **options)

    def _made_http(self) -> ClientSession:
        """No cookies of one upstream for another."""
        arguments: dict[str, Any] = dict(self._http_arguments)
        middlewares = (*arguments.pop("middlewares", ()), send_once)
        if "connector" not in arguments:
            resolver = RuledResolver(self._rules, DefaultResolver(), exempt=URL(self._fallback).host or "")
            arguments["connector"] = Connector(resolver, self._max_age, self._rng)
        arguments.setdefault("cookie_jar", DummyCookieJar())
        if self._timeout is not None:
            arguments["timeout"] = self._timeout
        return ClientSession(middlewares=middlewares, **arguments)


async def _refused() -> ClientResponse:
    raise SessionClosed("the session is not open")


def _shown(fallback: str) -> str:
    return str(URL(fallback).with_user(None)) if fallback else ""


def shed_when_full(session: Session, exempt: Container[str] = ()) -> Middleware:
    """A middleware for the aiohttp application that calls through `session`: once `max_outbound` of its calls are
    out or waiting, new requests get 503 with Retry-After, except for the paths in `exempt`, such as a health
    check's. Raises ConfigError where the session has no `max_outbound`."""
    if not session.max_outbound:
        raise ConfigError("shed_when_full: the session has no max_outbound, so nothing would ever be shed")

    @web.middleware
    async def shed(request: web.Request, handler: Handler) -> web.StreamResponse:
        if not session.overloaded or request.path in exempt:
            return await handler(request)
        session.metrics.shed += 1
        return web.json_response(
            {"error": OVERLOADED.name, "detail": "too many calls of this server are out or waiting"},
            status=OVERLOADED.status,
            headers={"Retry-After": str(OVERLOADED.retry_after)},
        )

    return shed
