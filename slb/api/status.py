"""Of this process: health, readiness, status, and its metrics."""

import os
import socket
import time
from collections import Counter

from aiohttp import hdrs, web

from slb.api.endpoints import Endpoint
from slb.api.parts import ApiParts
from slb.api.replies import json_reply
from slb.api.shapes import Health, MirrorShown, RedisShown, Status, TrafficShown, UpstreamsShown
from slb.build import build
from slb.errors import DRAINING, NOT_READY, Refused
from slb.observe.exposition import OPEN_METRICS, PLAIN, wants_open_metrics


class HealthEndpoint:
    """Open: load balancers in front of slb probe these, and nothing else is shown there. /readyz does not change
    when Redis is lost: traffic goes on, and all instances leaving DNS at once would end it."""

    def __init__(self, parts: ApiParts, prefix: str = "") -> None:
        self._parts = parts
        self._prefix = prefix

    def endpoints(self) -> list[Endpoint]:
        unready = (NOT_READY, DRAINING)
        return [
            Endpoint("GET", f"{self._prefix}/healthz", self.health, Health, is_open=True),
            Endpoint("GET", f"{self._prefix}/readyz", self.ready, Health, None, unready, is_open=True),
        ]

    async def health(self, _: web.Request) -> web.Response:
        """The process runs."""
        return json_reply(Health(status="ok"))

    async def ready(self, _: web.Request) -> web.Response:
        """A table is loaded, and it does not drain.

        With several workers: at least one of them serves. Over a connection to a process that has let another take
        its sockets: what that one is, which gets the next connection.
        """
        if self._parts.replaced():
            reply = json_reply(Health(status="ready"))
            reply.force_close()
            return reply
        if self._parts.draining():
            raise Refused(DRAINING, "this instance is about to stop")
        if self._parts.settings.calls_upstreams and not self._parts.mirror.ready:
            raise Refused(NOT_READY, "no routes have been loaded yet")
        if not self._parts.serving():
            raise Refused(NOT_READY, "traffic is not listened for here")
        return json_reply(Health(status="ready"))


class StatusEndpoint:
    """What this process is and counts. Not open, as routes and upstreams by name are not public."""

    def __init__(self, parts: ApiParts) -> None:
        self._parts = parts

    def endpoints(self) -> list[Endpoint]:
        return [
            Endpoint("GET", "/status", self.status, Status, rights=("read",)),
            Endpoint("GET", "/metrics", self.metrics, rights=("metrics", "read"), content_type="text/plain"),
        ]

    async def metrics(self, request: web.Request) -> web.Response:
        """Counters for Prometheus.

        In OpenMetrics, with exemplars, for a scraper whose `Accept` asks for that.
        """
        is_open = wants_open_metrics(",".join(request.headers.getall(hdrs.ACCEPT, ())))
        text = await self._parts.metrics_text(is_open)
        return web.Response(body=text, headers={hdrs.CONTENT_TYPE: OPEN_METRICS if is_open else PLAIN})

    async def status(self, _: web.Request) -> web.Response:
        """This process, its Redis and its traffic."""
        return json_reply({**self._status(), **self._parts.status_extra()})

    def _status(self) -> Status:
        parts = self._parts
        return Status(
            version=build(),
            id=parts.instances.info.id,
            name=parts.instances.info.name,
            pid=os.getpid(),
            host=socket.gethostname(),
            roles=list(parts.settings.roles),
            started=parts.started,
            uptime_seconds=max(0.0, time.time() - parts.started),
            draining=parts.draining(),
            redis=self._redis(),
            mirror=self._mirror(),
            health=self._health(),
            traffic=self._traffic(),
            ledger=parts.ledger(),
            instances=parts.instances.count,
        )

    def _redis(self) -> RedisShown:
        up = self._parts.connection.up and not self._parts.metrics.redis.unanswered()
        return RedisShown(
            url=self._parts.connection.url_shown,
            up=up,
            mode="fail_open" if not up else "polling" if self._parts.metrics.redis.polling else "sync",
            staleness_seconds=self._parts.watcher.staleness(),
        )

    def _mirror(self) -> MirrorShown:
        mirror = self._parts.mirror
        return MirrorShown(
            ready=mirror.ready,
            routes=len(mirror.records),
            upstreams=len(mirror.upstreams),
            skipped=dict(self._parts.metrics.redis.skipped),
            faults=dict(mirror.faults),
        )

    def _health(self) -> UpstreamsShown:
        upstreams = self._parts.mirror.upstreams.values()
        return UpstreamsShown(
            down=sum(bool(live.down) for live in upstreams),
            ejected=sum(not live.available for live in upstreams),
            panic=sorted(self._parts.metrics.health.panicking),
        )

    def _traffic(self) -> TrafficShown:
        metrics = self._parts.metrics
        by_code: Counter[str] = Counter()
        by_reason: Counter[str] = Counter()
        ended = {path: counts.outcomes() for path, counts in metrics.traffic.routes.items()}
        for outcomes in (*ended.values(), metrics.traffic.ended_with_routes):
            for (code, reason), count in outcomes.items():
                by_code[str(code)] += count
                by_reason[reason] += count
        by_reason.pop("", None)
        inflight = {
            upstream.member: upstream.inflight
            for upstream in self._parts.mirror.upstreams.values()
            if upstream.inflight
        }
        return TrafficShown(
            requests=by_code.total(),
            by_code=dict(by_code),
            by_reason=dict(by_reason),
            by_route={path: outcomes.total() for path, outcomes in ended.items()},
            retries=sum(metrics.retries.values()),
            inflight=sum(inflight.values()),
            inflight_by_upstream=inflight,
            client_connections=metrics.clients.connections(),
            client_disconnects=metrics.clients.disconnects,
        )
