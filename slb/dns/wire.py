"""DNS messages, as far as a responder needs them (RFC 1035, 4; RFC 6891): a question is read, records are written.

Strict and linear: one question, no compression in it, at most one OPT record behind it, and nothing after that. No
label is looked at twice, and whatever else a packet holds, reading it raises nothing."""

from collections.abc import Sequence
from ipaddress import IPv4Address, IPv6Address
from struct import Struct
from typing import NamedTuple

Address = IPv4Address | IPv6Address

A, NS, SOA, AAAA, SRV, OPT, HINFO, IXFR, AXFR, ANY = 1, 2, 6, 28, 33, 41, 13, 251, 252, 255
IN = 1
NOERROR, FORMERR, SERVFAIL, NXDOMAIN, NOTIMP, REFUSED, BADVERS = 0, 1, 2, 3, 4, 5, 16
RCODES = {0: "NOERROR", 1: "FORMERR", 2: "SERVFAIL", 3: "NXDOMAIN", 4: "NOTIMP", 5: "REFUSED", 16: "BADVERS"}

HEADER = 12
LONGEST_NAME = 255
PLAIN_SIZE = 512
"""Bytes of an answer over UDP to a query without EDNS (RFC 1035, 2.3.4)."""
EDNS_SIZE = 1232
"""Bytes of any answer over UDP: what IPv6's smallest MTU carries whole, as the DNS flag day of 2020 settled on."""
STREAM_SIZE = 65_535

QNAME = b"\xc0\x0c"
"""A pointer to the name in the question: records that begin with it have that name in the case it came in."""
OPT_RECORD = b"\0" + OPT.to_bytes(2, "big") + EDNS_SIZE.to_bytes(2, "big") + b"\0\0\0\0\0\0"
_BADVERS_OPT = OPT_RECORD[:5] + b"\1" + OPT_RECORD[6:]

_PLAIN = b"\0\1\0\0\0\0\0\0"  # the counts of a query with one question; the last is that of additional records
_EDNS = b"\0\1\0\0\0\0\0\1"
_KIND = Struct(">HH")
_OPT = Struct(">BHHBBHH")
_COUNTS = Struct(">HHHH")
_FIXED = Struct(">HHIH")
_SRV = Struct(">HHH")
_LONGEST_AT = HEADER + LONGEST_NAME
"""Where the end of the name stands at the latest, and one byte more."""
_SHORTEST = HEADER + 1 + _KIND.size


class Query(NamedTuple):
    """A question: its `name` in lower case as on the wire, with the root's empty label. `end`: where it ends in the
    packet. `size`: bytes that may be sent over UDP, by EDNS; 0 without it. `rcode`: what it is refused with."""

    name: bytes
    kind: int
    end: int
    size: int
    rcode: int


def read(packet: bytes) -> Query | None:
    """None for what is no query, or is malformed: it gets no answer."""
    length = len(packet)
    if length < HEADER or packet[2] & 0x80:
        return None
    if packet[2] & 0x78:  # another opcode than QUERY: what follows may have any form
        return Query(b"", 0, HEADER, 0, NOTIMP)
    counts = packet[4:12]
    if length < _SHORTEST or counts[:2] != b"\0\1":
        return None
    at = HEADER
    while step := packet[at]:
        at += step + 1
        if step > 63 or at + _KIND.size >= length or at >= _LONGEST_AT:  # a pointer, or too long
            return None
    kind, class_ = _KIND.unpack_from(packet, at + 1)
    end = at + 1 + _KIND.size
    size, rcode = 0, NOERROR
    if counts == _EDNS:
        size, rcode = _read_opt(packet, end)
        if not size:
            return None
    elif counts != _PLAIN:
        return Query(b"", 0, end, 0, FORMERR)
    elif length != end:
        return None
    if class_ != IN and not rcode:
        rcode = REFUSED
    return Query(packet[HEADER : at + 1].lower(), kind, end, size, rcode)  # a length is below "A"


def _read_opt(packet: bytes, at: int) -> tuple[int, int]:
    """Size and rcode of a query whose last record stands at `at`; 0 where that is malformed, or no OPT."""
    if len(packet) < at + _OPT.size:
        return 0, 0
    root, kind, size, _, version, _, rest = _OPT.unpack_from(packet, at)
    if root or kind != OPT or len(packet) != at + _OPT.size + rest:
        return 0, 0
    return max(size, PLAIN_SIZE), BADVERS if version else NOERROR


def answer(
    packet: bytes,
    query: Query,
    rcode: int = NOERROR,
    records: bytes = b"",
    count: int = 0,
    authority: bytes = b"",
    truncated: bool = False,
    authoritative: bool = True,
) -> bytes:
    """The answer to `query`, which was read from `packet`: `count` records, and at most one in the authority
    section. RA is 0: nothing is looked up elsewhere."""
    flags = 0x80 | packet[2] & 0x79 | (0x04 if authoritative else 0) | (0x02 if truncated else 0)
    opt = b"" if not query.size else _BADVERS_OPT if rcode == BADVERS else OPT_RECORD
    return b"".join(
        (
            packet[:2],
            bytes((flags, rcode & 15)),
            _COUNTS.pack(query.end > HEADER, count, bool(authority), bool(opt)),
            packet[HEADER : query.end],
            records,
            authority,
            opt,
        )
    )


def wire_name(name: str) -> bytes:
    """`slb.internal` -> as on the wire, in lower case. Raises ValueError."""
    labels = name.rstrip(".").lower().encode("ascii").split(b".") if name.strip(".") else []
    if any(not 0 < len(label) < 64 for label in labels):
        raise ValueError(f"{name!r}: a label has 1 to 63 characters")
    written = b"".join(bytes((len(label),)) + label for label in labels) + b"\0"
    if len(written) > LONGEST_NAME:
        raise ValueError(f"{name!r}: a name has at most 253 characters")
    return written


def label(text: str) -> bytes:
    """One label, as on the wire."""
    return bytes((len(text),)) + text.encode("ascii")


def pointer(offset: int) -> bytes:
    return (0xC000 | offset).to_bytes(2, "big")


def record(kind: int, ttl: int, data: bytes, owner: bytes = QNAME) -> bytes:
    """One record; `owner`: a name as on the wire, or a pointer to one."""
    return owner + _FIXED.pack(kind, IN, ttl, len(data)) + data


def address_record(address: Address, ttl: int) -> bytes:
    return record(A if address.version == 4 else AAAA, ttl, address.packed)


def srv_record(priority: int, weight: int, port: int, target: bytes, ttl: int) -> bytes:
    """`target`: as on the wire; it may not be compressed (RFC 2782)."""
    return record(SRV, ttl, _SRV.pack(priority, weight, port) + target)


def soa_data(zone: bytes, serial: int, times: Sequence[int]) -> bytes:
    """`times`: refresh, retry, expire, and how long an answer that something is not there may be kept."""
    numbers = b"".join((each & 0xFFFFFFFF).to_bytes(4, "big") for each in (serial, *times))
    return label("ns") + zone + label("hostmaster") + zone + numbers
