"""The API of one process: its listener, the runners of its applications, and the log of their answers."""

import socket
from collections.abc import Collection
from typing import Any

from aiohttp import web

from slb.api.application import make_api, make_shortcut
from slb.api.connection import Rules
from slb.api.parts import ApiParts
from slb.api.replies import Answered
from slb.api.runner import make_runner
from slb.api.shortcut import Shortcut
from slb.config import Settings
from slb.lifecycle import use_all_descriptors
from slb.listening import BACKLOG
from slb.observe.log import AccessLog
from slb.observe.metrics import Metrics
from slb.places import Places
from slb.proxy.entrance import Entrance
from slb.proxy.target import judge_for_api
from slb.proxy.tls import Certificates, api_certificates

_GRACE = 2.0  # seconds the applications may take to finish their own answers at the end
_BESIDE_TRAFFIC, _ALONE, _LINGERING = 4, 2, 8


def room(settings: Settings, open_files: int) -> tuple[int, int, int]:
    """How many connections the API listener serves, of them from one address (0: no limit), and how many may linger
    after they were refused, where `open_files` may be open. Traffic needs descriptors more: the API has a quarter
    beside traffic, half without. One address has half of that at most, so that a monitoring system still comes
    in."""
    share = open_files // (_BESIDE_TRAFFIC if "proxy" in settings.roles else _ALONE)
    limit = max(1, min(settings.api_max_connections or share, share))
    per_peer = min(settings.api_max_connections_per_peer, (limit + 1) // 2)
    return limit, per_peer, 1 + limit // _LINGERING


class ApiServer:
    """`parts`: what each of its applications is made of. `draining`: whether the process is about to stop.
    `certificates`: of its listener; None where that speaks no TLS."""

    def __init__(self, settings: Settings, metrics: Metrics, access_log: AccessLog) -> None:
        self._settings = settings
        self._metrics = metrics
        self._access_log = access_log
        self.parts: list[ApiParts] = []
        self.draining = False
        self.certificates: Certificates | None = None
        self._runners: list[web.AppRunner] = []
        self._entrance: Entrance | None = None
        self._shared: Collection[socket.socket] = ()
        self._places: Places[Any] = Places(*room(settings, use_all_descriptors()))
        metrics.process.api_connections = lambda: len(self._places.taken)

    def reconfigure(self, settings: Settings) -> None:
        self._settings = settings
        limit, per_peer, lingering = room(settings, use_all_descriptors())
        self._places.set_limits(limit, per_peer, lingering)
        if self._entrance is not None:
            self._entrance.reconfigure(None, 0, limit, per_peer)
        for parts in self.parts:
            parts.settings = settings

    async def listen(
        self, parts: ApiParts, listener: socket.socket, shared: Collection[socket.socket] = ()
    ) -> None:
        """Answer on `listener`; `shared`, which may change: the sockets that another process has too. Raises
        ConfigError for certificates that cannot be used. A unix socket, which a worker's is, is for its supervisor,
        which speaks no TLS there."""
        self._shared = shared
        if listener.family != socket.AF_UNIX:
            self.certificates = api_certificates(self._settings, self._metrics)
        shortcut = make_shortcut(parts, self.answered)
        runner = await self.run(make_api(parts), shortcut, self._places)
        assert runner.server is not None
        limit, per_peer, _ = room(self._settings, use_all_descriptors())
        self._entrance = Entrance(runner.server, self.certificates, None, 0, limit, per_peer, self._metrics, "api")
        self._entrance.open(listener, BACKLOG)

    async def run(
        self, application: web.Application, shortcut: Shortcut | None = None, places: Places[Any] | None = None
    ) -> web.AppRunner:
        """An application's runner, closed with this server. `places`: those of its own listener."""
        throttle = self._access_log.refused
        rules = Rules(self._settings, judge_for_api, self.answered, shortcut, places, throttle)
        runner = make_runner(application, rules, _GRACE)
        await runner.setup()
        self._runners.append(runner)
        return runner

    def let_go(self) -> None:
        """Accept no more where another process does."""
        if self._entrance is not None:
            self._entrance.let_go(self._shared)

    async def close(self) -> None:
        self.let_go()
        if self._entrance is not None:
            self._entrance.close()
            await self._entrance.empty(_GRACE)
        for runner in self._runners:
            await runner.cleanup()

    def answered(self, answer: Answered) -> None:
        """Count and log an answer of the API, on either listener; not those of a worker to its supervisor."""
        if not answer.client:
            return
        self._metrics.process.api_requests[answer.status, answer.reason] += 1
        if answer.is_probe and not self._settings.access_log_probes:
            return
        reached = not answer.reason
        if self._access_log.wants(answer.status, answer.reason, reached):
            self._access_log.write(
                reached,
                method=answer.method,
                path=answer.path,
                status=answer.status,
                reason=answer.reason,
                route="",
                duration=answer.seconds,
                client=answer.client,
                request_id=answer.request_id,
                token=answer.token,
            )
