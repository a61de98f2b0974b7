"""The DNS responder of one process: follows the instances, checks them, and puts the answers together anew whenever
something has changed."""

import asyncio
import socket
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from random import Random
from typing import NoReturn

import structlog

from slb.config import Settings
from slb.control.instances import InstanceInfo, Instances
from slb.dns.checks import Checks
from slb.dns.fleet import Answered, Member, Place, answered, members, name_servers
from slb.dns.kept import KeptInstances
from slb.dns.responder import Responder
from slb.dns.tcp import TcpListener
from slb.dns.udp import UdpListener
from slb.dns.zone import Contents, Names
from slb.lifecycle import set_within
from slb.observe.dns import DnsCounts

_FIRST = 2.0
"""Seconds a start waits for Redis, and then for the first checks."""
_GRACE = 1.0
"""Seconds that connections may be open for at the end."""

_log = structlog.get_logger("slb.dns")


class DnsService:
    """`bound`: UDP and TCP sockets, in turn. `instances` beat in this process."""

    def __init__(
        self,
        settings: Settings,
        bound: Sequence[socket.socket],
        instances: Instances,
        kept: KeptInstances,
        counts: DnsCounts,
        rng: Random,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._settings = settings
        self._instances = instances
        self._kept = kept
        self._written: Sequence[InstanceInfo] = ()
        self._rng = rng
        self._wall = wall
        self._counts = counts
        self._responder = Responder(counts)
        self._udp = [UdpListener(each, self._responder, counts) for each in bound if each.type == socket.SOCK_DGRAM]
        self._streams = [each for each in bound if each.type == socket.SOCK_STREAM]
        self._tcp = TcpListener(self._responder, settings.dns_connections)
        self._members: dict[Place, Member] = {}
        self._answered = Answered()
        self._told = ""
        self._shown: object = None
        self._serial = 0
        self._changed = asyncio.Event()
        self._seen = asyncio.Event()
        self.answers = asyncio.Event()
        """Set once queries are answered."""
        self._checks = Checks(self._changed.set, self._count_check, rng)
        instances.on_change = self._see
        counts.is_on = True
        counts.connections = lambda: self._tcp.connections
        counts.addresses = lambda: len(self._answered.members)
        counts.out = lambda: len(self._out())

    async def run(self) -> NoReturn:
        """Answer until cancelled. Nobody is answered before the first checks have ended: clients that ask a second
        later are served, those with an empty answer keep it for that long."""
        try:
            await self._first()
            for each in self._udp:
                each.start()
            await self._tcp.start(self._streams)
            self.answers.set()
            while True:
                await self._changed.wait()
                self._changed.clear()
                self._show()
                await self._keep()
        finally:
            for each in self._udp:
                each.stop()
            self._tcp.stop()
            await self._checks.stop()

    async def follow(self) -> NoReturn:
        """Hear of instances that come, drain or leave; until cancelled."""
        await self._instances.follow_states()

    def let_go(self, shared: Collection[socket.socket]) -> None:
        """Read no more queries where another process does."""
        for each in [each for each in self._udp if each.bound in shared]:
            each.stop()
            each.bound.close()
            self._udp.remove(each)
        self._tcp.let_go(shared)

    async def leave(self) -> None:
        """Let clients that have connected ask what they came for."""
        await self._tcp.leave(_GRACE)

    def reconfigure(self, settings: Settings) -> None:
        """Let other settings hold."""
        self._settings = settings
        self._tcp.set_limit(settings.dns_connections)
        self._shown = None
        self._changed.set()

    def shown(self) -> dict[str, object]:
        """For /status."""
        settings = self._settings
        return {
            "zones": list(settings.dns_zones),
            "ttl": settings.dns_ttl,
            "mode": self._answered.mode,
            "addresses": sorted(str(each.place) for each in self._answered.members),
            "out": self._out(),
            "serial": self._serial,
        }

    async def _first(self) -> None:
        await set_within(self._seen, _FIRST)
        if not self._seen.is_set():  # Redis is away
            self._members = members(await asyncio.to_thread(self._kept.load))
            self._checks.follow(self._members)
        with suppress(TimeoutError):
            await self._checks.first(_FIRST)
        self._show()

    async def _keep(self) -> None:
        """Those that take traffic, whenever they have changed and some are live; no more often than they come."""
        infos = [each for each in self._instances.known if each.advertise]
        if infos and infos != self._written and self._answered.mode == "live":
            self._written = infos
            await asyncio.to_thread(self._kept.keep, infos)

    def _see(self) -> None:
        """Who is there has changed."""
        self._members = members(self._instances.known)
        self._checks.follow(self._members)
        self._seen.set()
        self._changed.set()

    def _show(self) -> None:
        before, now = self._answered, answered(self._members, self._checks.passes, self._answered)
        if now.mode != "live" and self._checks.pending():
            return  # what newcomers are is known in a moment
        self._answered = now
        self._log_changes(before, now)
        servers = name_servers([self._instances.info, *self._instances.known])
        settings = self._settings
        what = (
            sorted(now.members, key=_order),
            sorted(self._members.values(), key=_order),
            servers,
            settings.dns_ttl,
        )
        if what == self._shown:
            return
        self._shown = what
        self._serial = max(self._serial + 1, int(self._wall()))
        known = {each.place: each for each in (*now.members, *self._members.values())}
        contents = [
            Contents(name, now.members, list(known.values()), servers, round(settings.dns_ttl), self._serial)
            for name in settings.dns_zones
        ]
        near = {"", *(zone for _, zone in settings.dns_views)}
        names = {zone: Names(contents, zone, self._rng) for zone in near}
        self._responder.show(names, settings.dns_networks, settings.dns_views)

    def _log_changes(self, before: Answered, now: Answered) -> None:
        old, new = ({each.place for each in some.members} for some in (before, now))
        for place in sorted(new - old, key=str):
            _log.info("dns_address_in", address=str(place))
        for place in sorted(old - new, key=str):
            _log.info("dns_address_out", address=str(place), reason=self._reason(place))
        if now.mode != self._told:
            self._told = now.mode
            if now.mode == "live":
                _log.info("dns_live", addresses=len(new))
            else:
                _log.warning("dns_fail_open", mode=now.mode, addresses=len(new))
        self._counts.fail_open = now.mode != "live"

    def _out(self) -> dict[str, str]:
        inside = {each.place for each in self._answered.members}
        return {str(place): self._reason(place) for place in self._members.keys() - inside}

    def _reason(self, place: Place) -> str:
        member = self._members.get(place)
        if member is None:
            return "gone"
        return self._checks.results.get(place, "not checked yet") if member.is_ready else "draining"

    def _count_check(self, result: str) -> None:
        self._counts.checks[result] += 1


def _order(member: Member) -> tuple[int, int, int]:
    return member.place.address.version, int(member.place.address), member.place.port
