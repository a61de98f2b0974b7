"""Where upstreams are by what DNS answers: pure, but for the look, which asks."""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from slb.addresses import is_address
from slb.discovery.dns_questions import NoAnswer, Questions, Reply, name_of
from slb.dns_names import DnsName
from slb.errors import InvalidName
from slb.model import MOST_WEIGHT
from slb.names import join_member, normal_member
from slb.resolver import Rules

_FAMILIES = ("A", "AAAA")

Question = tuple[str, str]
"""A name, and the type of the records that are asked for."""


class Place(NamedTuple):
    """`host`: an address, or the name of an upstream with TLS. `weight`: by its SRV record."""

    host: str
    port: int
    weight: int | None = None


class Target(NamedTuple):
    """An SRV record. `host` is empty where the record says that there is no such service (RFC 2782)."""

    host: str
    port: int
    weight: int


def targets(records: Sequence[Any]) -> list[Target]:
    """Those of the lowest priority: the others are meant for when none of these can be reached."""
    lowest = min((each.priority for each in records), default=0)
    return [Target(name_of(each.target), each.port, each.weight) for each in records if each.priority == lowest]


def scaled(weights: Collection[int]) -> dict[int, int | None]:
    """SRV weights, 0 to 65535, as weights of upstreams, 1 to MOST_WEIGHT. Of a heavier set all shrink alike; 0 is
    the smallest. None where all are equal: then they say nothing."""
    if len(set(weights)) < 2:
        return dict.fromkeys(weights)
    shrunk = min(1.0, MOST_WEIGHT / max(weights))
    return {each: max(1, round(each * shrunk)) for each in weights}


def judged(places: Sequence[Place], scheme: str, rules: Rules) -> tuple[dict[str, int | None], list[str]]:
    """member -> weight, of places that may be upstreams; and why others may not. Of two records for one place the
    heavier holds."""
    members: dict[str, int | None] = {}
    refusals: list[str] = []
    for host, port, weight in places:
        refusal = rules.refusal(host, port) if is_address(host) else None
        try:
            member = normal_member(join_member(scheme, host, port))
        except InvalidName as error:
            refusal = str(error)
        if refusal:
            refusals.append(refusal)
        elif (known := members.get(member)) is None or known < (weight or 0):
            members[member] = weight
    return members, refusals


class Look:
    """One look at a name: asks what is to be asked. `before`: the answers of the last look, which stand for
    questions that are not answered now. `answers`: those of this one; `ttl`: the shortest of them, in seconds;
    `faults`: what was not answered. `is_unknown`: one of these has never been."""

    def __init__(self, questions: Questions, before: Mapping[Question, Reply]) -> None:
        self._questions = questions
        self._before = before
        self.answers: dict[Question, Reply] = {}
        self.faults: list[str] = []
        self.ttl = float("inf")
        self.is_unknown = False
        self.is_gone = False

    async def places(self, name: DnsName) -> list[Place]:
        if not name.is_srv:
            found = await asyncio.gather(*(self._ask(name.host, kind) for kind in name.families))
            return [Place(record.address, name.port) for reply in found for record in reply.records]
        reply = await self._ask(name.host, "SRV")
        of = targets(reply.records)
        self.is_gone = bool(of) and not any(each.host for each in of)
        weights = scaled([each.weight for each in of])
        if name.is_tls:
            return [Place(each.host, each.port, weights[each.weight]) for each in of if each.host]
        hosts = sorted({each.host for each in of if each.host})
        found_of = dict(
            zip(hosts, await asyncio.gather(*(self._addresses(each, reply) for each in hosts)), strict=True)
        )
        return [
            Place(address, each.port, weights[each.weight])
            for each in of
            for address in found_of.get(each.host, ())
        ]

    async def _addresses(self, host: str, srv: Reply) -> Sequence[str]:
        """Of an SRV record's target, which is one upstream: those of one family, IPv4 where it has any. What came
        along with the record is not asked for."""
        if host in srv.brought:
            return srv.brought[host]
        for family in _FAMILIES:
            reply = await self._ask(host, family)
            if reply.records:
                return [record.address for record in reply.records]
        return ()

    async def _ask(self, host: str, kind: str) -> Reply:
        question = host, kind
        try:
            reply = await self._questions.ask(host, kind)
            self.ttl = min(self.ttl, reply.ttl)
        except NoAnswer as error:
            self.faults.append(str(error))
            if question not in self._before:
                self.is_unknown = True
                return Reply((), 0.0)
            reply = self._before[question]
        self.answers[question] = reply
        return reply
