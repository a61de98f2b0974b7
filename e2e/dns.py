"""A DNS server for one name with several A records, on an address and port of its own (dnslib)."""

from collections.abc import Sequence
from types import TracebackType
from typing import Self

from dnslib import QTYPE, RCODE, RR, A, DNSRecord
from dnslib.server import BaseResolver, DNSHandler, DNSLogger, DNSServer


class OneName(BaseResolver):  # type: ignore[misc]
    """Answers `name` with all its addresses, and says of every other name that it does not exist."""

    def __init__(self, name: str, addresses: Sequence[str], ttl: int) -> None:
        self._name = name
        self._addresses = addresses
        self._ttl = ttl

    def resolve(self, request: DNSRecord, handler: DNSHandler) -> DNSRecord:
        reply = request.reply()
        if not request.q.qname.matchGlob(self._name):
            reply.header.rcode = RCODE.NXDOMAIN
        elif request.q.qtype in (QTYPE.A, QTYPE.ANY):
            for address in self._addresses:
                reply.add_answer(RR(request.q.qname, QTYPE.A, ttl=self._ttl, rdata=A(address)))
        return reply


class NameServer:
    """Serves one name over UDP while the context is entered; `port` is chosen by the kernel."""

    def __init__(self, name: str, addresses: Sequence[str], listen: str = "127.0.0.1", ttl: int = 1) -> None:
        silent = DNSLogger(log="-request,-reply,-truncated,-error", logf=lambda _: None)
        self._server = DNSServer(OneName(name, addresses, ttl), address=listen, port=0, logger=silent)
        self.address: tuple[str, int] = self._server.server.server_address[:2]

    def __enter__(self) -> Self:
        self._server.start_thread()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.stop()
        self._server.server.server_close()
