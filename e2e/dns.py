"""A DNS server on an address and port of its own, UDP and TCP (dnslib), whose records change while it serves."""

import threading
from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Literal, NamedTuple, Self

from dnslib import QTYPE, RCODE, RR, DNSRecord
from dnslib.server import BaseResolver, DNSHandler, DNSLogger, TCPServer, UDPServer

_LONGEST_UDP = 1232  # bytes of an answer; longer ones are cut short, and asked for again over TCP
_POLL = 0.05  # seconds until a server that is asked to stop notices
_PORTS_TRIED = 20

Trouble = Literal["SERVFAIL", "REFUSED", "silence"]


class Question(NamedTuple):
    """One that was asked: the name without the dot at its end, and over what."""

    name: str
    kind: str
    protocol: str


class Zone(BaseResolver):  # type: ignore[misc]
    """Answers from `records`, lines of a zone file, and says of every name that has none that it does not exist.
    The addresses of SRV targets come along. `troubles`: names (without the dot at their end) and what is answered
    instead. `asked`: all questions so far."""

    def __init__(self, records: Sequence[str]) -> None:
        self.troubles: dict[str, Trouble] = {}
        self.asked: list[Question] = []
        self.brings_addresses = True
        self._records: Sequence[Any] = ()
        self.publish(*records)

    def publish(self, *records: str) -> None:
        """These from now on, such as `flux.internal. 60 IN A 10.0.0.1`."""
        self._records = RR.fromZone("\n".join(records)) if records else ()

    def resolve(self, request: DNSRecord, handler: DNSHandler) -> DNSRecord | None:
        name, reply, records = request.q.qname, request.reply(), self._records
        plain = str(name).removesuffix(".").lower()
        self.asked.append(Question(plain, QTYPE[request.q.qtype], handler.protocol))
        trouble = self.troubles.get(plain)
        if trouble == "silence":
            return None
        if trouble is not None:
            reply.header.rcode = getattr(RCODE, trouble)
            return reply
        if not any(each.rname == name for each in records):
            reply.header.rcode = RCODE.NXDOMAIN
        for each in records:
            if each.rname == name and each.rtype in (request.q.qtype, QTYPE.CNAME):
                reply.add_answer(each)
        targets = {answer.rdata.target for answer in reply.rr if answer.rtype == QTYPE.SRV}
        for each in records if self.brings_addresses else ():
            if each.rtype == QTYPE.A and each.rname in targets:
                reply.add_ar(each)
        return reply


class Silence(Exception):
    """Nothing is answered."""


class _Handler(DNSHandler):  # type: ignore[misc]
    udplen = _LONGEST_UDP

    def handle(self) -> None:
        with suppress(Silence, OSError):
            super().handle()

    def get_reply(self, data: bytes) -> bytes:
        request = DNSRecord.parse(data)
        reply = self.server.resolver.resolve(request, self)
        if reply is None:
            raise Silence
        packed: bytes = reply.pack()
        if self.protocol == "udp" and len(packed) > self.udplen:
            cut = request.reply()  # with the question, which dnslib's own leaves out
            cut.header.tc = 1
            packed = cut.pack()
        return packed


class NameServer:
    """Serves its zone while the context is entered; the port is chosen by the kernel."""

    def __init__(self, *records: str, listen: str = "127.0.0.1") -> None:
        self.zone = Zone(records)
        self._servers = _bound(listen)
        self.address: tuple[str, int] = self._servers[0].server_address[:2]
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Self:
        for each in self._servers:
            each.resolver, each.logger = self.zone, DNSLogger(log="-request,-reply,-truncated,-error")
            thread = threading.Thread(target=each.serve_forever, args=(_POLL,), daemon=True)
            thread.start()
            self._threads.append(thread)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for each in self._servers:
            each.shutdown()
            each.server_close()
        for thread in self._threads:
            thread.join()

    def __str__(self) -> str:
        host, port = self.address
        return f"{host}:{port}"


def addresses_of(name: str, addresses: Sequence[str], ttl: int = 1) -> list[str]:
    """The records of one name."""
    return [f"{name}. {ttl} IN A {address}" for address in addresses]


def _bound(listen: str) -> tuple[UDPServer, TCPServer]:
    """Both on one port."""
    for _ in range(_PORTS_TRIED):
        udp = UDPServer((listen, 0), _Handler)
        try:
            return udp, TCPServer(udp.server_address[:2], _Handler)
        except OSError:
            udp.server_close()
    raise OSError(f"no port of {listen} is free for UDP and TCP")
