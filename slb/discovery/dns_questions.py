"""Questions to DNS: one place for all names that are followed, so that there is one limit for all of them."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple, TypeVar

import dns.asyncresolver
import dns.exception
import dns.message
import dns.name
import dns.nameserver
import dns.rdatatype
import dns.resolver

from slb.errors import SlbError

_AT_ONCE = 32
"""Questions under way. A thousand names that are followed from one moment on would be as many sockets."""

_PAYLOAD = 1232
"""Bytes of an answer over UDP, which no network cuts into fragments (DNS flag day 2020). Longer ones come over
TCP."""

_TRY, _LIFETIME = 2.0, 5.0  # seconds of one try at one server, and of one question at all servers

_LARGE = 200
"""Records. dnspython takes 20 us to read one, and nothing else runs meanwhile: a name that had more is asked for in
a thread the next time. In one, so that a DNS that is away takes no thread from those who look up names to
connect."""

_MANNER: Mapping[str, Any] = {"search": True, "raise_on_no_answer": False}
_Resolver = TypeVar("_Resolver", bound=dns.resolver.BaseResolver)

Server = tuple[str, int]


class NoAnswer(SlbError):
    """No server has answered, or none could: nothing is known now of what was asked."""


class Reply(NamedTuple):
    """`records`: rdata of dnspython; none where there is no such name, or it has none of this type. `ttl`: seconds.
    `brought`: addresses (A) that came along, by name."""

    records: Sequence[Any]
    ttl: float
    brought: Mapping[str, Sequence[str]] = {}


class Questions:
    """`servers` are asked, in this order; without any those of /etc/resolv.conf, with its search list, read at each
    question since it may change."""

    def __init__(self, servers: Sequence[Server] = (), lifetime: float = _LIFETIME) -> None:
        self.servers = servers
        self._lifetime = lifetime
        self._free = asyncio.Semaphore(_AT_ONCE)
        self._large: set[tuple[str, str]] = set()
        self._aside = ThreadPoolExecutor(1, "dns")

    async def ask(self, host: str, kind: str) -> Reply:
        """`kind`: A, AAAA or SRV. An answer that was cut short is asked for again over TCP. Raises NoAnswer."""
        async with self._free:
            try:
                answer = await self._resolved(host, kind)
            except dns.resolver.NXDOMAIN as error:
                responses = error.kwargs["responses"].values()  # one for each name of the search list
                return Reply((), min(_ttl_of_none(each, each.resolve_chaining().minimum_ttl) for each in responses))
            except (dns.exception.DNSException, OSError, ValueError) as error:
                raise NoAnswer(f"{host} {kind}: {' '.join(str(error).split())}") from None
        return _reply(answer)

    async def _resolved(self, host: str, kind: str) -> dns.resolver.Answer:
        if (host, kind) in self._large:
            resolve = partial(self._set_up(dns.resolver.Resolver).resolve, host, kind, **_MANNER)
            answer = await asyncio.get_running_loop().run_in_executor(self._aside, resolve)
        else:
            answer = await self._set_up(dns.asyncresolver.Resolver).resolve(host, kind, **_MANNER)
        is_large = sum(map(len, (*answer.response.answer, *answer.response.additional))) > _LARGE
        (self._large.add if is_large else self._large.discard)((host, kind))
        return answer

    def _set_up(self, made: Callable[..., _Resolver]) -> _Resolver:
        resolver = made(configure=not self.servers)
        if self.servers:
            resolver.nameservers = [dns.nameserver.Do53Nameserver(host, port) for host, port in self.servers]
            resolver.domain = dns.name.root  # that of this machine would be searched, and other servers are asked
        resolver.use_edns(0, 0, _PAYLOAD)
        resolver.timeout, resolver.lifetime = min(_TRY, self._lifetime), self._lifetime
        return resolver


def name_of(name: dns.name.Name) -> str:
    """In lower case and without the dot at its end, as members have it; empty for the root."""
    return name.to_text(omit_final_dot=True).lower().removesuffix(".")


def _ttl_of_none(response: dns.message.Message, ttl: float) -> float:
    """Seconds that an answer without records holds: `ttl`, 0 where nothing says how long (RFC 2308, section 5)."""
    has_soa = any(each.rdtype == dns.rdatatype.SOA for each in response.authority)
    return ttl if has_soa or response.answer else 0.0


def _reply(answer: dns.resolver.Answer) -> Reply:
    brought = [each for each in answer.response.additional if each.rdtype == dns.rdatatype.A]
    ttl: float = answer.chaining_result.minimum_ttl
    if not answer.rrset:
        ttl = _ttl_of_none(answer.response, ttl)
    ttl = min([ttl, *(each.ttl for each in brought)])
    addresses = {name_of(each.name): [record.address for record in each] for each in brought}
    return Reply(tuple(answer.rrset or ()), ttl, addresses)
