"""The UDP listener: packets are read and answered many in one turn of the loop, without a transport between."""

import asyncio
import socket
import sys
from collections.abc import Callable
from ipaddress import ip_address
from typing import Any

from slb.dns.responder import Responder
from slb.observe.dns import DnsCounts

_AT_ONCE = 64
"""Packets in one turn, about 2 ms: then others have theirs, such as a beat that is due."""
_LONGEST = 4096
"""Bytes of a packet that are read: a longer query is cut, and so malformed."""
_BUFFER = 1 << 20
_IP_PKTINFO = 8  # in <linux/in.h>; Python 3.11 has no name for it


class UdpListener:
    """Answers what comes to `bound`, a bound socket that does not block."""

    def __init__(self, bound: socket.socket, responder: Responder, counts: DnsCounts) -> None:
        self.bound = self._socket = bound
        self._over_udp = responder.over_udp
        self._counts = counts
        self._read = self._read_one
        if _on_all_addresses(bound) and sys.platform == "linux":
            # A client takes an answer only from the address it has asked.
            level, name = (socket.IPPROTO_IPV6, socket.IPV6_RECVPKTINFO)
            if bound.family == socket.AF_INET:
                level, name = socket.IPPROTO_IP, _IP_PKTINFO
            bound.setsockopt(level, name, 1)
            self._read = self._read_one_with_address
        for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
            bound.setsockopt(socket.SOL_SOCKET, option, _BUFFER)

    def start(self) -> None:
        asyncio.get_running_loop().add_reader(self._socket.fileno(), self._came)

    def stop(self) -> None:
        asyncio.get_running_loop().remove_reader(self._socket.fileno())

    def _came(self) -> None:
        read = self._read
        try:
            for _ in range(_AT_ONCE):
                read()
        except (BlockingIOError, InterruptedError):
            pass
        except OSError:  # such as an ICMP error of an earlier answer: what it was about is not known
            self._counts.dropped["socket"] += 1

    def _read_one(self) -> None:
        packet, peer = self._socket.recvfrom(_LONGEST)
        answer = self._over_udp(packet, peer[0])
        if answer is not None:
            self._send(self._socket.sendto, answer, peer)

    def _read_one_with_address(self) -> None:
        packet, beside, _, peer = self._socket.recvmsg(_LONGEST, 64)
        answer = self._over_udp(packet, peer[0])
        if answer is not None:
            self._send(self._socket.sendmsg, [answer], _from(beside), 0, peer)

    def _send(self, send: Callable[..., int], *arguments: Any) -> None:
        try:
            send(*arguments)
        except OSError:  # no room: a resolver asks again; or a port of 0, which nobody sends from
            self._counts.dropped["unsent"] += 1


def _from(beside: list[tuple[int, int, bytes]]) -> list[tuple[int, int, bytes]]:
    """What makes an answer leave from the address that its query came to, by the interface that routes choose."""
    return [
        (level, kind, bytes(4) + data[4:8] + bytes(4) if level == socket.IPPROTO_IP else data[:16] + bytes(4))
        for level, kind, data in beside
    ]


def _on_all_addresses(bound: socket.socket) -> bool:
    return ip_address(bound.getsockname()[0].partition("%")[0]).is_unspecified
