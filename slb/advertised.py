"""Which addresses clients reach a listener at: as it is set, or as this machine's routes show."""

import socket
from collections.abc import Iterator, Sequence
from ipaddress import IPv4Address, IPv6Address, ip_address
from urllib.parse import urlsplit

from slb.names import join_member
from slb.setting_values import advertised_place

_ANYWHERE = {4: "192.0.2.1", 6: "2001:db8::1"}
"""Addresses for documentation: packets to them would take the default route. None is sent."""
_PORT = 6379


def advertised(bound: Sequence[tuple[str, int]], given: Sequence[str], redis: str) -> str:
    """`10.0.0.5:8080,[fd00::5]:8080` for listeners bound to `bound`. `given`: the setting, with a port of its own
    or the first listener's. Without it an address that is bound, and in place of all addresses the one that this
    machine has on the way to `redis` (a URL). Looks up a name, so it may take a while."""
    if given:
        port = bound[0][1] if bound else 0
        return ",".join(_with_port(each, port) for each in given)
    return ",".join(_joined(host, port) for listener, port in bound for host in _reached(listener, redis))


def _reached(host: str, redis: str) -> Iterator[str]:
    address = ip_address(host)
    if not address.is_unspecified:
        yield host
        return
    for version in (4,) if address.version == 4 else (4, 6):  # a socket on :: takes IPv4 too
        found = _on_the_way(_host_of(redis), version)
        # A Redis on this machine says nothing about how others reach it.
        found = (
            found if found and not found.is_loopback else _on_the_way((_ANYWHERE[version], _PORT), version) or found
        )
        if found:
            yield str(found)


def _on_the_way(there: tuple[str, int] | None, version: int) -> IPv4Address | IPv6Address | None:
    """This machine's address that packets to `there` have; None where there is no way."""
    family = socket.AF_INET if version == 4 else socket.AF_INET6
    if there is None:
        return None
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(there)
            return ip_address(probe.getsockname()[0].partition("%")[0])
    except OSError:
        return None


def _host_of(url: str) -> tuple[str, int] | None:
    try:
        parts = urlsplit(url.partition(",")[0])
        return (parts.hostname, parts.port or _PORT) if parts.hostname else None
    except ValueError:
        return None


def _with_port(given: str, port: int) -> str:
    host, own = advertised_place(given)
    return _joined(host, own or port)


def _joined(host: str, port: int) -> str:
    return join_member("http", host, port)
