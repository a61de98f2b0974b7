"""Where clients reach a listener."""

from ipaddress import ip_address

import pytest

from slb.advertised import advertised
from slb.setting_values import advertised_place, views, zone_name

ON_ALL = [("0.0.0.0", 8080)]


def test_what_is_set_holds_with_the_listeners_port_unless_it_has_one() -> None:
    given = ["10.0.0.5", "10.0.0.6:81", "fd00::5", "[fd00::6]:82"]
    assert advertised(ON_ALL, given, "") == "10.0.0.5:8080,10.0.0.6:81,[fd00::5]:8080,[fd00::6]:82"


def test_a_listener_on_one_address_is_reached_there() -> None:
    assert advertised([("127.0.0.2", 80), ("::1", 81)], (), "redis://10.0.0.1") == "127.0.0.2:80,[::1]:81"


def test_one_on_all_addresses_is_reached_at_an_address_of_this_machine() -> None:
    for redis in ("", "redis://127.0.0.1:6379", "redis://nowhere.invalid", "unix:///tmp/x", "redis://[::1"):
        found = advertised(ON_ALL, (), redis)
        if found:  # a machine without a default route has none
            host, _, port = found.rpartition(":")
            assert port == "8080"
            assert not ip_address(host).is_unspecified


def test_there_is_nothing_to_advertise_without_a_listener() -> None:
    assert advertised([], (), "") == ""


@pytest.mark.parametrize("text", ["host", "host:80", "0.0.0.0", "[::]:80", "224.0.0.1:1", "10.0.0.1:x", ""])
def test_what_nobody_can_connect_to_is_refused(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 -- several messages
        advertised_place(text)


def test_zones_are_written_in_lower_case_and_bounded() -> None:
    assert zone_name("SLB.Internal.") == "slb.internal"
    for text in ("", ".", "a..b", "a b", "x" * 64, "é.internal", ".".join(["a" * 50] * 5)):
        with pytest.raises(ValueError, match="no name of a zone"):
            zone_name(text)


def test_a_view_is_a_network_and_a_zone() -> None:
    ((network, zone),) = views(["10.1.0.0/16 = eu-west-1a"])
    assert (str(network), zone) == ("10.1.0.0/16", "eu-west-1a")
    for text in ("10.1.0.0/16", "x=y", "10.1.0.1/16=a", "10.1.0.0/16="):
        with pytest.raises(ValueError):  # noqa: PT011 -- several messages
            views([text])
