"""The PROXY protocol, versions 1 and 2 (proxy-protocol.txt, HAProxy). Pure: bytes in, an answer out. Whether the
peer is trusted is decided before."""

import ipaddress
from dataclasses import dataclass

_SIGNATURE = b"\r\n\r\n\0\r\nQUIT\n"
_FIXED = 16
"""Bytes of version 2 that say how many follow."""
_V1_START = b"PROXY "
_V1_LONGEST = 107
_V1_SHORTEST = {
    b"TCP4 ": len(b"PROXY TCP4 0.0.0.0 0.0.0.0 0 0\r\n"),
    b"TCP6 ": len(b"PROXY TCP6 :: :: 0 0\r\n"),
    b"UNKNO": len(b"PROXY UNKNOWN\r\n"),
}
_VERSIONS = {"TCP4": 4, "TCP6": 6}
_FIRST = len(b"PROXY TCP4 ")

_LOCAL, _PROXY = 0x20, 0x21
_ADDRESS_BYTES = {0: 0, 1: 12, 2: 36, 3: 216}
"""By family: unspecified, IPv4, IPv6, unix; both ends and their ports."""
_STREAM = 1
_HIGHEST_TRANSPORT = 2


class MalformedHeader(ValueError):
    """No further bytes can make this a PROXY header."""


@dataclass(frozen=True, slots=True)
class Header:
    """`local`: the connection is the sender's own, as in its health checks. `client`: address and port; None where
    the sender does not know it, or it is no Internet address."""

    local: bool = False
    client: tuple[str, int] | None = None


def missing(data: bytes) -> int:
    """How many bytes are certainly missing of the header that begins with `data`; 0: it is whole. Reading just so
    many never takes a byte of what follows. Raises MalformedHeader."""
    if data[:1] == _SIGNATURE[:1]:
        return _missing_v2(data)
    return _missing_v1(data)


def parse(header: bytes) -> Header:
    """Read a whole header. Raises MalformedHeader."""
    return _parse_v2(header) if header.startswith(_SIGNATURE) else _parse_v1(header)


def _missing_v1(data: bytes) -> int:
    if not data.startswith(_V1_START[: len(data)]):
        raise MalformedHeader("this is not a PROXY header")
    if len(data) < _FIRST:
        return _FIRST - len(data)
    shortest = _V1_SHORTEST.get(data[len(_V1_START) : _FIRST])
    if shortest is None:
        raise MalformedHeader("neither TCP4, TCP6 nor UNKNOWN")
    if data.endswith(b"\r\n"):
        return 0
    if len(data) >= _V1_LONGEST or b"\n" in data:
        raise MalformedHeader(f"no CRLF within {_V1_LONGEST} bytes")
    return max(1, shortest - len(data))


def _parse_v1(line: bytes) -> Header:
    try:
        protocol, *fields = line.decode("ascii").removesuffix("\r\n").split(" ")[1:]
    except ValueError:
        raise MalformedHeader("not a line of ASCII") from None
    if protocol == "UNKNOWN":  # whatever else it says is to be ignored
        return Header()
    version = _VERSIONS.get(protocol)
    if version is None or len(fields) != 4:
        raise MalformedHeader("not TCP4 or TCP6, two addresses and two ports")
    source, _ = (_address(text, version) for text in fields[:2])
    port, _ = (_port(text) for text in fields[2:])
    return Header(client=(source, port))


def _address(text: str, version: int) -> str:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        raise MalformedHeader(f"{text!r} is not an address") from None
    if address.version != version or "%" in text:
        raise MalformedHeader(f"{text!r} is not an IPv{version} address")
    return str(address)


def _port(text: str) -> int:
    if not text.isdigit() or len(text) > 5 or int(text) > 65535 or str(int(text)) != text:
        raise MalformedHeader(f"{text!r} is not a port")
    return int(text)


def _missing_v2(data: bytes) -> int:
    if not data.startswith(_SIGNATURE[: len(data)]):
        raise MalformedHeader("this is not a PROXY header")
    if len(data) < _FIXED:
        return _FIXED - len(data)
    command, family, transport, length = _fixed(data)
    if command not in (_LOCAL, _PROXY):
        raise MalformedHeader(f"no version and command {command:#04x}")
    if family not in _ADDRESS_BYTES or transport > _HIGHEST_TRANSPORT:
        raise MalformedHeader(f"no address family {family} or transport {transport}")
    if command == _PROXY and length < _ADDRESS_BYTES[family]:
        raise MalformedHeader("too short for its addresses")
    return _FIXED + length - len(data)


def _fixed(data: bytes) -> tuple[int, int, int, int]:
    """Version and command, address family, transport, bytes that follow."""
    return data[12], data[13] >> 4, data[13] & 0xF, int.from_bytes(data[14:16])


def _parse_v2(header: bytes) -> Header:
    """Extensions (TLVs) are ignored."""
    command, family, transport, _ = _fixed(header)
    if command == _LOCAL:
        return Header(local=True)
    if transport != _STREAM or family not in (1, 2):
        return Header()
    size = 4 if family == 1 else 16
    source = header[_FIXED : _FIXED + size]
    ports = _FIXED + 2 * size
    return Header(client=(str(ipaddress.ip_address(source)), int.from_bytes(header[ports : ports + 2])))
