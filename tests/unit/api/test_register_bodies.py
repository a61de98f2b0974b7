"""Bodies of /register: what is taken, and which field is named where it is not."""

from typing import Any

import pytest

from slb.api.bodies import MAX_LIST, attributes_of, registrations
from slb.errors import Refused


def refusal(body: Any) -> str:
    with pytest.raises(Refused) as caught:
        registrations(body)
    assert caught.value.reason.name == "bad_request"
    return caught.value.detail


def test_an_object_names_one_upstream_in_its_normal_form() -> None:
    (one,) = registrations({"path": "//p1/./%7Ex/", "target": "Example.COM"})
    assert (one.path, one.member) == ("/p1/~x", "example.com:80")
    assert one.reply("added", True) == {"path": "/p1/~x", "target": "example.com:80", "added": True}


@pytest.mark.parametrize(
    ("target", "member"),
    [
        ("10.0.0.1", "10.0.0.1:80"),
        ("http://10.0.0.1:81", "10.0.0.1:81"),
        ("https://gpu-1", "https://gpu-1:443"),
        ("[2001:DB8::1]:8000", "[2001:db8::1]:8000"),
    ],
)
def test_a_target_without_a_port_gets_its_schemes(target: str, member: str) -> None:
    (one,) = registrations({"path": "/", "target": target})
    assert one.member == member


def test_a_list_is_the_older_form() -> None:
    first, second = registrations(
        [{"ip_address": "10.0.0.1", "port": 81, "path": "/p1"}, {"ip_address": "2001:DB8::1", "path": "/p2/"}]
    )
    assert (first.member, second.member) == ("10.0.0.1:81", "[2001:db8::1]:80")
    assert second.reply("removed", False) == {
        "ip_address": "2001:db8::1",
        "port": 80,
        "path": "/p2",
        "removed": False,
    }


def test_an_empty_list_asks_for_nothing() -> None:
    assert list(registrations([])) == []


def test_attributes_that_are_not_given_are_not_written() -> None:
    (one,) = registrations({"path": "/", "target": "h", "weight": 3, "zone": "a"})
    (plain,) = registrations({"path": "/", "target": "h", "node": None})
    assert attributes_of(one) == {"weight": "3", "zone": "a"}
    assert attributes_of(plain) == {}


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"path": None}, "path: "),
        ({"path": "p1"}, "path: 'p1' does not start with '/'"),
        ({"path": "/a/../.."}, "path: "),
        ({"path": "/a%2fb"}, "path: "),
        ({"path": "/a\u0000"}, "path: "),
        ({"target": 80}, "target: "),
        ({"target": ""}, "target: "),
        ({"target": "h:0"}, "target: 'h:0': the port is"),
        ({"target": "::1:9000"}, "target: '::1:9000': an IPv6 address is written [::1]:9000"),
        ({"target": "h:65536"}, "target: "),
        ({"target": "ftp://h"}, "target: "),
        ({"target": "127.1"}, "target: "),
        ({"target": "a b"}, "target: "),
        ({"target": "http://user:secret@h"}, "target: "),
        ({"weight": "3"}, "weight: "),
        ({"weight": 0}, "weight: "),
        ({"weight": True}, "weight: "),
        ({"slots": 1.5}, "slots: "),
        ({"zone": "a\nb"}, "zone: "),
        ({"port": 80}, "port: there is no field of this name"),
    ],
)
def test_what_is_wrong_is_named_by_its_field(change: dict[str, Any], named: str) -> None:
    assert refusal({"path": "/p1", "target": "10.0.0.1", **change}).startswith(named)


def test_every_wrong_field_is_named() -> None:
    detail = refusal({"target": 1, "colour": "red"})
    assert "path: Field required" in detail
    assert "target: " in detail
    assert "colour: there is no field of this name" in detail


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"port": "80"}, "[1].port: "),
        ({"port": 0}, "[1].port: "),
        ({"port": 65536}, "[1].port: "),
        ({"ip_address": "example.com"}, "[1].ip_address: "),
        ({"ip_address": "10.0.0.1:80"}, "[1].ip_address: "),
        ({"path": "x"}, "[1].path: "),
        ({"target": "h"}, "[1].target: there is no field of this name"),
    ],
)
def test_in_a_list_the_element_is_named_too(change: dict[str, Any], named: str) -> None:
    good = {"ip_address": "10.0.0.1", "port": 80, "path": "/p1"}
    assert refusal([good, {**good, **change}]).startswith(named)


@pytest.mark.parametrize("body", [None, 1, "x", True])
def test_neither_an_object_nor_a_list_is_refused(body: Any) -> None:
    assert refusal(body).startswith("body: ")


def test_more_than_can_be_written_in_one_step_is_refused() -> None:
    one = {"ip_address": "10.0.0.1", "path": "/p1"}
    assert len(registrations([one] * MAX_LIST)) == MAX_LIST
    assert refusal([one] * (MAX_LIST + 1)).startswith(f"body: List should have at most {MAX_LIST} items")


def test_an_element_that_is_no_object_is_refused() -> None:
    assert refusal([1]).startswith("[0]: has to be an object")


def test_a_path_is_too_long_as_it_is_written() -> None:
    assert refusal({"path": "/." * 450_000, "target": "h"}) == "path: is longer than 2048 characters"
