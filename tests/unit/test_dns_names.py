import pytest

from slb.control.keys import is_normal_member, member_of, membership_of
from slb.dns_names import SCHEMES, is_dns_name, normal_target, split_dns_name
from slb.errors import InvalidName


@pytest.mark.parametrize(
    ("written", "normal"),
    [
        ("dns://Flux.Internal:8000", "dns://flux.internal:8000"),
        ("DNS://flux.internal.", "dns://flux.internal:80"),
        ("dns4://flux", "dns4://flux:80"),
        ("dns6://flux:1", "dns6://flux:1"),
        ("dns+srv://_http._tcp.Flux.internal.", "dns+srv://_http._tcp.flux.internal"),
        (" dns+srvs://_https._tcp.flux ", "dns+srvs://_https._tcp.flux"),
        ("10.0.0.1", "10.0.0.1:80"),
        ("dns.example:53", "dns.example:53"),
        ("https://dns.example", "https://dns.example:443"),
    ],
)
def test_a_target_has_one_normal_form(written: str, normal: str) -> None:
    assert normal_target(written) == normal
    assert normal_target(normal) == normal
    assert is_normal_member(normal)


@pytest.mark.parametrize(
    ("written", "why"),
    [
        ("dns+srv://_http._tcp.flux:80", "each SRV record has its own"),
        ("dns://10.0.0.1:80", "address already"),
        ("dns://[::1]:80", "is a name and a port"),
        ("dns://flux.internal/x", "is a name and a port"),
        ("dns://", "neither an address nor a host name"),
        ("dns://flux:0", "from 1 to 65535"),
        ("dns://flux:70000", "from 1 to 65535"),
        ("dnsx://flux", "schemes of names in DNS"),
        ("dns+tcp://flux", "schemes of names in DNS"),
        ("dns+srv://" + "a." * 130 + "b", "neither"),
        ("dns://fl ux", "neither"),
    ],
)
def test_what_is_no_name_in_dns_is_refused_with_what_is_wrong(written: str, why: str) -> None:
    with pytest.raises(InvalidName, match=why) as raised:
        normal_target(written)
    assert written in str(raised.value)


def test_only_names_with_a_scheme_of_dns_are_names_to_be_resolved() -> None:
    assert [is_dns_name(f"{scheme}://a") for scheme in SCHEMES] == [True] * len(SCHEMES)
    assert not any(map(is_dns_name, ["dns.example:80", "https://dns.example:443", "10.0.0.1:80"]))


def test_each_scheme_says_which_records_are_asked_for() -> None:
    assert split_dns_name("dns://a:1").families == ("A", "AAAA")
    assert split_dns_name("dns6://a:1").families == ("AAAA",)
    srv = split_dns_name("dns+srvs://a")
    assert (srv.is_srv, srv.is_tls, srv.port) == (True, True, 0)


def test_a_name_in_dns_has_its_place_in_the_log_of_changes_and_attributes_of_its_own() -> None:
    assert membership_of("slb_p1 dns://flux:80") == ("/p1", "dns://flux:80")
    assert member_of("slb:upstream:dns+srv://flux") == "dns+srv://flux"
    assert not is_normal_member("dns://flux")
