"""PROXY headers, versions 1 and 2: what is one, what it means, how many bytes it has."""

import ipaddress
import struct

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from slb.proxy.proxy_protocol import Header, MalformedHeader, missing, parse
from tests.support.proxy_header import SIGNATURE, version_2

IPV4 = bytes([192, 0, 2, 1, 203, 0, 113, 7]) + struct.pack("!HH", 56324, 443)
IPV6 = ipaddress.ip_address("2001:db8::1").packed + bytes(16) + struct.pack("!HH", 4124, 443)
TLVS = b"\x03\x00\x04\xde\xad\xbe\xef" + b"\x04\x00\x00" + b"\xea\x00\x03vpc"

GOOD = [
    (b"PROXY TCP4 255.255.255.255 255.255.255.255 65535 65535\r\n", ("255.255.255.255", 65535)),
    (b"PROXY TCP4 192.168.0.1 192.168.0.11 56324 443\r\n", ("192.168.0.1", 56324)),
    (b"PROXY TCP4 0.0.0.0 0.0.0.0 0 0\r\n", ("0.0.0.0", 0)),
    (b"PROXY TCP6 :: :: 0 0\r\n", ("::", 0)),
    (
        b"PROXY TCP6 " + b"ffff:" * 7 + b"ffff " + b"ffff:" * 7 + b"ffff 65535 65535\r\n",
        ("ffff:" * 7 + "ffff", 65535),
    ),
    (b"PROXY UNKNOWN\r\n", None),
    (b"PROXY UNKNOWN ffff:f:f ffff 65535 65535\r\n", None),
    (b"PROXY UNKNOWN " + b"x" * 91 + b"\r\n", None),
    (version_2(0x21, 0x11, IPV4), ("192.0.2.1", 56324)),
    (version_2(0x21, 0x11, IPV4 + TLVS), ("192.0.2.1", 56324)),
    (version_2(0x21, 0x21, IPV6), ("2001:db8::1", 4124)),
    (version_2(0x21, 0x21, IPV6 + bytes(65535 - 36)), ("2001:db8::1", 4124)),
    (version_2(0x21, 0x31, bytes(216)), None),
    (version_2(0x21, 0x12, IPV4), None),
    (version_2(0x21, 0x00, b""), None),
    (version_2(0x21, 0x00, TLVS), None),
]

BAD = {
    "another protocol": b"GET / HTTP/1.1\r\nHost: h\r\n\r\n",
    "lower case": b"proxy TCP4 192.0.2.4 192.0.2.4 1 1\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "no such protocol": b"PROXY UDP4 192.0.2.4 192.0.2.4 1 1\r\n",
    "two spaces": b"PROXY TCP4  192.0.2.4 192.0.2.4 1 1\r\n",
    "a tab": b"PROXY TCP4 192.0.2.4\t192.0.2.4 1 1 1\r\n",
    "a field too many": b"PROXY TCP4 192.0.2.4 192.0.2.4 1 1 1\r\n",
    "a field too few": b"PROXY TCP4 192.0.2.4 192.0.2.4 11111\r\n",
    "no address": b"PROXY TCP4 1.2.3.256 192.0.2.4 1 1\r\n",
    "an octal address": b"PROXY TCP4 01.2.3.4 192.0.2.4 1 1\r\n",
    "a short address": b"PROXY TCP4 127.1 192.0.2.4 11111 11111\r\n",
    "no destination": b"PROXY TCP4 192.0.2.4 1.2.3.x 1 1\r\n",
    "IPv6 for IPv4": b"PROXY TCP4 2001:db8::1 2001:db8::2 1 1\r\n",
    "IPv4 for IPv6": b"PROXY TCP6 192.0.2.4 192.0.2.4 1 1\r\n",
    "a zone": b"PROXY TCP6 fe80::1%eth0 fe80::2 1 1\r\n",
    "a port too high": b"PROXY TCP4 192.0.2.4 192.0.2.4 65536 1\r\n",
    "a port with zeros": b"PROXY TCP4 192.0.2.4 192.0.2.4 080 80\r\n",
    "a signed port": b"PROXY TCP4 192.0.2.4 192.0.2.4 +80 80\r\n",
    "a destination without port": b"PROXY TCP4 192.0.2.4 192.0.2.4 1000 x\r\n",
    "not ASCII": "PROXY TCP4 192.0.2.4 192.0.2.4 ٣ 1000\r\n".encode(),
    "a bare LF": b"PROXY TCP4 192.0.2.4 192.0.2.4 1000 1000\nGET /",
    "no end": b"PROXY TCP4 192.0.2.4 192.0.2.4 1 1" + b" " * 100,
    "108 bytes": b"PROXY UNKNOWN " + b"x" * 92 + b"\r\n",
    "unknown, nearly": b"PROXY UNKNOXX ::1 ::1 1 2\r\n",
    "a version nearly": b"PROXY UNKNO 192.0.2.1 192.0.2.2 1 2\r\n",
    "version 3": version_2(0x31, 0x11, IPV4),
    "no such command": version_2(0x22, 0x11, IPV4),
    "no such family": version_2(0x21, 0x41, bytes(216)),
    "no such transport": version_2(0x21, 0x13, IPV4),
    "IPv4 cut short": version_2(0x21, 0x11, IPV4[:-1]),
    "IPv6 cut short": version_2(0x21, 0x21, IPV6[:-1]),
    "a broken signature": SIGNATURE[:-1] + b"X" + b"\x21\x11\x00\x0c" + IPV4,
}


def read(stream: bytes) -> tuple[Header, bytes]:
    """As a connection is read: only ever what is missing. The header, and what stands behind it."""
    header = b""
    while still := missing(header):
        piece = stream[len(header) : len(header) + still]
        if not piece:
            raise EOFError
        header += piece
    return parse(header), stream[len(header) :]


@pytest.mark.parametrize(("header", "client"), GOOD, ids=lambda value: repr(value)[:60])
def test_a_header_names_the_client_and_ends_where_it_ends(header: bytes, client: tuple[str, int] | None) -> None:
    assert read(header + b"GET / HTTP/1.1\r\n") == (Header(client=client), b"GET / HTTP/1.1\r\n")


def test_a_header_for_the_sender_itself_names_no_client() -> None:
    assert read(version_2(0x20, 0x00, b"") + b"rest") == (Header(local=True), b"rest")
    assert read(version_2(0x20, 0x11, IPV4) + b"rest") == (Header(local=True), b"rest")


@pytest.mark.parametrize("stream", BAD.values(), ids=BAD)
def test_what_is_no_header_is_refused(stream: bytes) -> None:
    with pytest.raises(MalformedHeader):
        read(stream)


@pytest.mark.parametrize(
    "header", [header for header, _ in GOOD if len(header) < 1000], ids=lambda value: repr(value)[:60]
)
def test_no_beginning_of_a_header_is_taken_for_the_whole_or_refused(header: bytes) -> None:
    for length in range(len(header)):
        assert 0 < missing(header[:length]) <= len(header) - length


@given(st.binary(max_size=300))
@example(b"PROXY TCP4 ")
@example(SIGNATURE + b"\x21")
def test_whatever_comes_is_read_refused_or_waited_for(stream: bytes) -> None:
    try:
        header, rest = read(stream)
    except (MalformedHeader, EOFError):
        return
    assert stream.endswith(rest)
    assert header.client is None or ipaddress.ip_address(header.client[0])


@given(st.sampled_from([header for header, _ in GOOD if len(header) < 300]), st.data())
def test_a_header_with_a_byte_changed_never_breaks_the_parser(header: bytes, data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(header) - 1))
    changed = header[:place] + bytes([data.draw(st.integers(0, 255))]) + header[place + 1 :]
    try:
        read(changed + b"rest")
    except (MalformedHeader, EOFError):
        return


@given(st.ip_addresses(), st.integers(0, 65535))
def test_both_versions_mean_the_same_for_any_client(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address, port: int
) -> None:
    line = f"PROXY TCP{address.version} {address} {address} {port} 443\r\n".encode()
    payload = address.packed * 2 + struct.pack("!HH", port, 443)
    block = version_2(0x21, 0x11 if address.version == 4 else 0x21, payload)
    assert read(line) == read(block) == (Header(client=(str(address), port)), b"")
