"""A responder behind real sockets of 127.0.0.1, without Redis."""

import asyncio
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import dns.asyncquery
import dns.message

from slb.dns.fleet import Member
from slb.dns.tcp import TcpListener
from slb.dns.udp import UdpListener
from slb.listening import name_server_sockets
from tests.support.dns import ZONE, Asked, fleet
from tests.support.waiting import patience


@dataclass
class Rig:
    asked: Asked
    tcp: TcpListener
    address: tuple[str, int]

    async def over_udp(self, name: str = ZONE, kind: str = "A", host: str = "") -> dns.message.Message:
        query = dns.message.make_query(name, kind)
        where, port = host or self.address[0], self.address[1]
        return await dns.asyncquery.udp(query, where, port=port, timeout=patience(5))

    async def over_tcp(self, name: str = ZONE, kind: str = "A") -> dns.message.Message:
        query = dns.message.make_query(name, kind)
        return await dns.asyncquery.tcp(query, self.address[0], port=self.address[1], timeout=patience(5))


@asynccontextmanager
async def responding(
    members: Sequence[Member] | None = None, listen: str = "127.0.0.1:0", limit: int = 16
) -> AsyncIterator[Rig]:
    asked = Asked(fleet(3) if members is None else members)
    datagrams, stream = name_server_sockets([listen])
    address = stream.getsockname()[:2]
    udp, tcp = UdpListener(datagrams, asked.responder, asked.counts), TcpListener(asked.responder, limit)
    udp.start()
    await tcp.start([stream])
    try:
        yield Rig(asked, tcp, address)
    finally:
        udp.stop()
        tcp.stop()
        for each in (datagrams, stream):
            each.close()
        for _ in range(3):
            await asyncio.sleep(0)  # transports that were aborted are closed in the loop's next turns


def datagram_socket() -> socket.socket:
    bound = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    bound.setblocking(False)
    return bound
