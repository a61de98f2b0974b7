"""Which values of Host are one host[:port] (RFC 9110, 7.2; RFC 3986, 3.2.2)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slb.errors import BAD_REQUEST, Refused
from slb.proxy.headers import RequestHead, RequestHeads

GOOD = [
    *("h", "h:80", "h:", "", "1.2.3.4:8080", "a_b.c~d", "a%20b", "%C3%A9.test:1", "%ff%00", "a!$&'()*+,;=b"),
    *("[::]", "[::1]", "[::1]:80", "[2001:db8::A:b]", "[1:2:3:4:5:6:7:8]", "[::ffff:10.0.0.1]:443", "[1::]"),
]
BAD = [
    *("a%zz", "a%", "a%2", "%", "%%41", "a%2g", "%u0041", "a%41%4", "a:%38"),
    *("[ab..cd::1]", "[]", "[:]", "[:::]", "[1:2]", "[1:2:3:4:5:6:7:8:9]", "[::1::]", "[12345::]", "[::1.2.3]"),
    *("[::1.2.3.4.5]", "[::1.2.3.256]", "[1.2.3.4]", "[::g]", "[::1", "::1", "[::1]x", "[::1]]", "[[::1]]"),
    *("[fe80::1%25eth0]", "[fe80::1%eth0]", "[v1.a:b]", "[%3A%3A1]", "[::1]:8a", "[" + "0:" * 7 + "00000]"),
    *("h h", "h/x", "u@h", "h:x", "[h]", "h,i:80:80", "\xe9", "h\\x", "h?x", "h:80:80"),
]


def host(value: str) -> RequestHead:
    return RequestHeads(b"own", 100, trusted=False).parse(f"Host: {value}\r\n\r\n".encode("latin-1"))


@pytest.mark.parametrize("value", GOOD)
def test_a_host_is_a_name_or_an_address_with_or_without_a_port(value: str) -> None:
    assert host(value).host == value.encode()


@pytest.mark.parametrize("value", BAD)
def test_what_two_servers_could_read_as_two_hosts_is_refused(value: str) -> None:
    with pytest.raises(Refused) as caught:
        host(value)
    assert caught.value.reason is BAD_REQUEST


@given(st.ip_addresses(v=6))
def test_every_ipv6_address_is_one(address: object) -> None:
    for written in (str(address), str(getattr(address, "exploded", "")), str(address).upper()):
        assert host(f"[{written}]:80").host == f"[{written}]:80".encode()
