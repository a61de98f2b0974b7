"""Which addresses may be an upstream's."""

import ipaddress
from collections.abc import Iterable

import pytest

from slb.addresses import Address, AddressRules, CallbackRules, in_networks, is_local_address, unwrapped


def rules(
    networks: Iterable[str] = (), own: Iterable[tuple[str, int]] = (), local: Iterable[str] = ()
) -> AddressRules:
    here = {ipaddress.ip_address(each) for each in local}

    def is_local(address: Address) -> bool:
        return address in here

    return AddressRules([ipaddress.ip_network(each) for each in networks], lambda: own, is_local)


@pytest.mark.parametrize(
    "ip",
    [
        *("10.0.0.1", "127.0.0.1", "8.8.8.8", "100.100.100.201", "168.63.129.17", "::1", "2001:db8::1"),
        *("2001:db8::5eff:10.0.0.1", "fd00:ec2::253", "2001:1::1", "::ffff:10.0.0.1", "64:ff9b::a00:1"),
    ],
)
def test_ordinary_addresses_are_allowed(ip: str) -> None:
    assert rules().refusal(ip, 80) is None


@pytest.mark.parametrize(
    "ip",
    [
        "0.0.0.0",
        "0.1.2.3",
        "::",
        "::ffff:0.0.0.0",
        "169.254.169.254",
        "fe80::1",
        "fe80::1%eth0",
        "::ffff:169.254.169.254",
        "64:ff9b::a9fe:a9fe",
        "2002:a9fe:a9fe::1",
        "224.0.0.1",
        "ff02::1",
        "255.255.255.255",
        "::ffff:255.255.255.255",
        "100.100.100.200",
        "::ffff:100.100.100.200",
        "64:ff9b::6464:64c8",
        "168.63.129.16",
        "2002:a83f:8110::1",
        "192.0.0.192",
        "fd00:ec2::254",
        "fd20:ce::254",
        "::10.0.0.1",
        "::127.0.0.1",
        "::ffff:0:10.0.0.1",
        "64:ff9b:1::a00:1",
        "64:ff9b:1:a9fe:a9:fe00::",
        "2001::1",
        "2001:0:a9fe:a9fe::1",
        "2001:db8::5efe:10.0.0.1",
        "2001:db8::200:5efe:169.254.169.254",
        "240.0.0.1",
        "254.1.2.3",
        "::ffff:240.0.0.1",
    ],
)
def test_addresses_no_upstream_can_have_are_refused_in_every_spelling(ip: str) -> None:
    refusal = rules().refusal(ip, 80)
    assert refusal is not None
    assert ip in refusal


def test_what_is_not_an_address_is_refused() -> None:
    assert rules().refusal("example.com", 80) is not None


def test_the_own_listener_is_refused_and_its_neighbours_are_not() -> None:
    guarded = rules(own=[("127.0.0.2", 8080)])
    assert guarded.refusal("127.0.0.2", 8080) == "127.0.0.2 port 8080 is slb's own listener"
    assert guarded.refusal("::ffff:127.0.0.2", 8080) is not None
    assert guarded.refusal("127.0.0.2", 8081) is None
    assert guarded.refusal("127.0.0.3", 8080) is None


@pytest.mark.parametrize(
    ("bound", "ip", "refused"),
    [
        ("0.0.0.0", "192.0.2.7", True),
        ("0.0.0.0", "198.51.100.1", False),
        ("0.0.0.0", "2001:db8::7", False),
        ("::", "2001:db8::7", True),
        ("::", "192.0.2.7", True),
        ("::", "::ffff:192.0.2.7", True),
    ],
)
def test_a_wildcard_listener_is_every_address_of_this_machine(bound: str, ip: str, refused: bool) -> None:
    guarded = rules(own=[(bound, 8080)], local=["192.0.2.7", "2001:db8::7"])
    assert (guarded.refusal(ip, 8080) is not None) is refused
    assert guarded.refusal(ip, 80) is None


def test_listeners_that_open_later_count_too() -> None:
    own: list[tuple[str, int]] = []
    guarded = rules(own=own)
    assert guarded.refusal("127.0.0.1", 8080) is None
    own.append(("127.0.0.1", 8080))
    assert guarded.refusal("127.0.0.1", 8080) is not None


def test_networks_narrow_what_is_allowed_and_open_nothing() -> None:
    narrowed = rules(networks=["10.0.0.0/8", "169.254.0.0/16", "2001:db8::/32"])
    assert narrowed.refusal("10.9.9.9", 80) is None
    assert narrowed.refusal("::ffff:10.9.9.9", 80) is None
    assert narrowed.refusal("2001:db8::1", 80) is None
    assert narrowed.refusal("192.168.0.1", 80) == "192.168.0.1 is in none of upstream_networks"
    assert narrowed.refusal("169.254.169.254", 80) is not None


def test_an_address_is_local_where_a_socket_can_be_bound_to_it() -> None:
    assert is_local_address(unwrapped("127.0.0.1"))
    assert is_local_address(unwrapped("127.77.0.1"))
    assert not is_local_address(unwrapped("192.0.2.1"))


def test_an_address_is_in_a_network_in_whichever_form_its_socket_has_it() -> None:
    networks = [ipaddress.ip_network("10.0.0.0/8"), ipaddress.ip_network("2001:db8::/32")]
    assert all(in_networks(each, networks) for each in ("10.1.2.3", "::ffff:10.1.2.3", "2001:db8::1"))
    assert not any(in_networks(each, networks) for each in ("11.1.2.3", "::ffff:11.1.2.3", "::1", "unknown", ""))
    assert not in_networks("10.1.2.3", [])


def test_a_network_of_reserved_addresses_may_be_named_and_nothing_else_opens_one() -> None:
    assert rules(networks=["10.0.0.0/8", "240.10.0.0/16"]).refusal("240.10.0.1", 80) is None
    assert rules(networks=["10.0.0.0/8", "240.10.0.0/16"]).refusal("240.11.0.1", 80) is not None
    for everything in ("0.0.0.0/0", "::/0"):
        assert rules(networks=[everything]).refusal("240.10.0.1", 80) is not None


@pytest.mark.parametrize("never", ["100.100.100.200", "fd00:ec2::254", "64:ff9b:1::1", "255.255.255.255"])
def test_no_network_opens_what_is_never_an_upstream(never: str) -> None:
    assert rules(networks=[never]).refusal(never, 80) is not None


def callback_rules(networks: Iterable[str] = (), own: Iterable[tuple[str, int]] = ()) -> CallbackRules:
    return CallbackRules([ipaddress.ip_network(each) for each in networks], rules(own=own))


@pytest.mark.parametrize("ip", ["8.8.8.8", "1.1.1.1", "2606:4700::1111", "64:ff9b::808:808", "::ffff:8.8.8.8"])
def test_callbacks_go_to_public_addresses(ip: str) -> None:
    assert callback_rules().refusal(ip, 443) is None


PRIVATE = [
    *(
        "10.0.0.1",
        "172.16.0.1",
        "192.168.1.1",
        "127.0.0.1",
        "100.64.0.1",
        "192.0.2.1",
        "240.0.0.1",
        "::1",
        "fd00::1",
    ),
    *("fec0::1", "2001:db8::1", "::ffff:10.0.0.1", "64:ff9b::a00:1", "2002:a00:1::1", "4000::1"),
]


@pytest.mark.parametrize("ip", PRIVATE)
def test_callbacks_go_to_no_other_address_unless_its_network_is_listed(ip: str) -> None:
    said = callback_rules(["198.51.100.0/24"]).refusal(ip, 443)
    assert said == f"{ip} is not public, and in none of jobs_callback_networks"
    assert callback_rules([str(unwrapped(ip)), "198.51.100.0/24"]).refusal(ip, 443) is None


@pytest.mark.parametrize(
    "ip", ["169.254.169.254", "fe80::1", "0.0.0.0", "224.0.0.1", "100.100.100.200", "::127.0.0.1"]
)
def test_callbacks_never_go_where_upstreams_never_are(ip: str) -> None:
    assert "where no callback goes" in str(callback_rules(["0.0.0.0/0", "::/0"]).refusal(ip, 443))


def test_callbacks_never_go_to_slbs_own_listener() -> None:
    to_all = callback_rules(["0.0.0.0/0"], own=[("127.0.0.1", 8081)])
    assert to_all.refusal("127.0.0.1", 8081) == "127.0.0.1 port 8081 is slb's own listener"
    assert to_all.refusal("127.0.0.1", 8082) is None


@pytest.mark.parametrize("text", ["2130706433", "127.1", "0177.0.0.1", "localhost", ""])
def test_what_is_no_address_in_its_usual_form_takes_no_callback(text: str) -> None:
    assert callback_rules(["0.0.0.0/0"]).refusal(text, 443) == f"{text} is not an address"
