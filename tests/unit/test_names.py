"""Normal forms: one spelling for what means the same, and no spelling for what servers read in different ways."""

import re
import string
import sys
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slb.errors import InvalidName
from slb.names import (
    counted,
    duration,
    is_normal_path,
    join_member,
    natural,
    normal_member,
    normal_path,
    seconds,
    split_member,
)

_path_like = st.lists(st.sampled_from([*"//..%;aZ~{}é ", "%2e", "%7E", "%C3%a9", "%2f", "\\"]), max_size=12).map(
    "".join
)


@pytest.mark.parametrize(
    ("written", "normal"),
    [
        ("/", "/"),
        ("//", "/"),
        ("/a/", "/a"),
        ("/a//b", "/a/b"),
        ("/a/./b/../c", "/a/c"),
        ("/a/..", "/"),
        ("/%61%7e", "/a~"),
        ("/a/%2E%2e/b", "/b"),
        ("/a%3ab", "/a%3Ab"),
        ("/a:b", "/a%3Ab"),
        ("/{x}", "/%7Bx%7D"),
        ("/é", "/%C3%A9"),
        ("/%c3%a9", "/%C3%A9"),
        ("/%25", "/%25"),
        ("/...", "/..."),
        ("/.hidden", "/.hidden"),
        ("/a..b/..c", "/a..b/..c"),
        ("/a b", "/a%20b"),
    ],
)
def test_a_path_has_one_normal_form(written: str, normal: str) -> None:
    assert normal_path(written) == normal


@pytest.mark.parametrize(
    "path",
    [
        "",
        "a",
        "a/b",
        "/..",
        "/a/../..",
        "/%2e%2e",
        "/a%2fb",
        "/a%2Fb",
        "/a%5cb",
        "/a\\b",
        "/a%00b",
        "/a\x00b",
        "/a\nb",
        "/a\x7fb",
        "/a%0ab",
        "/a%7fb",
        "/%",
        "/%4",
        "/%zz",
        "/..;/a",
        "/.;x",
        "/%2e.%3ba",
        "/\ud800",
    ],
)
def test_a_path_servers_could_read_in_different_ways_has_no_normal_form(path: str) -> None:
    with pytest.raises(InvalidName):
        normal_path(path)
    assert not is_normal_path(path)


def test_a_request_may_carry_encoded_controls_but_no_route_is_named_with_them() -> None:
    assert normal_path("/a%0a%7f", encoded_controls=True) == "/a%0A%7F"
    with pytest.raises(InvalidName):
        normal_path("/a%00", encoded_controls=True)
    with pytest.raises(InvalidName):
        normal_path("/a\n", encoded_controls=True)


@given(st.one_of(st.text(), _path_like, _path_like.map("/".__add__)))
def test_normalising_a_path_twice_changes_nothing_more(text: str) -> None:
    try:
        normal = normal_path(text)
    except InvalidName:
        return
    assert normal_path(normal) == normal
    assert is_normal_path(normal)
    assert set(normal) <= set(string.ascii_letters + string.digits + "-._~%/")
    assert "//" not in normal
    assert normal == "/" or not normal.endswith("/")


@given(_path_like.map("/".__add__), st.data())
def test_escaping_any_unreserved_character_of_a_path_changes_nothing(text: str, data: st.DataObject) -> None:
    try:
        normal = normal_path(text)
    except InvalidName:
        return
    at = data.draw(st.integers(0, len(normal) - 1))
    if normal[at].isalnum() and "%" not in normal[max(0, at - 2) : at]:
        assert normal_path(f"{normal[:at]}%{ord(normal[at]):02x}{normal[at + 1 :]}") == normal


@pytest.mark.parametrize(
    ("written", "member"),
    [
        ("10.0.0.1:80", "10.0.0.1:80"),
        ("10.0.0.1", "10.0.0.1:80"),
        (" 10.0.0.1:0080 ", "10.0.0.1:80"),
        ("Example.COM", "example.com:80"),
        ("example.com.:8080", "example.com:8080"),
        ("http://h", "h:80"),
        ("https://h", "https://h:443"),
        ("HTTPS://h:80", "https://h:80"),
        ("[::1]", "[::1]:80"),
        ("[0:0:0::0001]:9", "[::1]:9"),
        ("https://[2001:DB8::1]", "https://[2001:db8::1]:443"),
        ("my_service-1:65535", "my_service-1:65535"),
    ],
)
def test_a_member_has_one_normal_form(written: str, member: str) -> None:
    assert normal_member(written) == member
    assert normal_member(member) == member
    assert join_member(*split_member(written)) == member


@pytest.mark.parametrize(
    "target",
    [
        "",
        ":80",
        "garbage garbage",
        "h:0",
        "h:65536",
        "h:100000",
        "h:+80",
        "h:",
        "h:80:81",
        "::1",
        "[::1",
        "[::1]80",
        "[h]:80",
        "[192.0.2.4]:80",
        "ftp://h",
        "http://http://h",
        "://h",
        "h/path",
        "http://h/",
        "user@h",
        "-h",
        "h-",
        "a..b",
        ".",
        "1.2.3",
        "127.1",
        "0x7f.1",
        "2130706433",
        "1.2.3.256:80",
        "192.0.2.4:99999",
        "x" * 64,
        ".".join(["abcdefgh"] * 40),
        "h\n:80",
    ],
)
def test_a_target_that_names_no_one_place_is_refused(target: str) -> None:
    with pytest.raises(InvalidName):
        normal_member(target)


@pytest.mark.parametrize(
    "target", ["http://127.0.0.1:9500/v1", "127.0.0.1:9500/v1", "h/v1", "https://h/", "[::1]/v1"]
)
def test_the_error_for_a_target_with_a_path_states_that_it_has_none(target: str) -> None:
    with pytest.raises(InvalidName, match=r"a target has no path; .* strip_prefix"):
        normal_member(target)


@pytest.mark.parametrize("zone", ["eth0", "a b\r\nx: y", "1"])
def test_an_ipv6_zone_is_no_part_of_a_member(zone: str) -> None:
    with pytest.raises(InvalidName):
        normal_member(f"[fe80::1%{zone}]:80")


@given(st.ip_addresses(), st.integers(1, 65535), st.sampled_from(["http", "https"]))
def test_joining_and_splitting_a_member_are_inverse(address: object, port: int, scheme: str) -> None:
    member = join_member(scheme, str(address), port)
    assert split_member(member) == (scheme, str(address), port)


@given(st.text(alphabet="aZ0.-_:[]/%@\r\n \tKhttps", max_size=20))
def test_whatever_is_written_a_member_is_printable_ascii_and_normal(text: str) -> None:
    try:
        member = normal_member(text)
    except InvalidName:
        return
    assert normal_member(member) == member
    assert member.isascii()
    assert member.isprintable()
    assert " " not in member


@pytest.mark.parametrize(
    ("written", "value"),
    [("250ms", 0.25), ("1.5s", 1.5), ("2m", 120), ("1h", 3600), (" 3s ", 3), ("0", 0), (0, 0), (0.0, 0), ("0s", 0)],
)
def test_a_duration_is_a_number_with_a_unit(written: str | float, value: float) -> None:
    assert seconds(written) == pytest.approx(value)


@pytest.mark.parametrize(
    "written", ["", "5", 5, 1.5, "s", "-1s", "1e3s", "1 s", "1d", "٣s", "inf", "9" * 400 + "s"]
)
def test_a_duration_without_unit_or_bound_is_refused(written: str | float) -> None:
    with pytest.raises(InvalidName):
        seconds(written)


@pytest.mark.parametrize(
    ("value", "written"),
    [(0, "0"), (0.25, "250ms"), (1.5, "1.5s"), (90, "90s"), (120, "2m"), (1234567, "1234567s")],
)
def test_a_duration_is_shown_as_a_person_writes_it(value: float, written: str) -> None:
    assert duration(value) == written


@given(st.floats(min_value=1e-6, max_value=1e9))
def test_a_duration_that_is_shown_can_be_read_back(value: float) -> None:
    assert seconds(duration(value)) == pytest.approx(value, rel=1e-6)


@pytest.mark.parametrize("piece", ["%41", "!", "/", "%C3%A4", "/.", "/a%2F"])
def test_a_path_as_long_as_a_request_line_costs_no_call_for_each_of_its_bytes(
    piece: str,
) -> None:
    calls = 0

    def count(_: object, event: str, __: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    path = "/" + piece * (16_000 // len(piece))
    sys.setprofile(count)
    try:
        with suppress(InvalidName):
            normal_path(path)
    finally:
        sys.setprofile(None)
    assert calls < len(path)


def test_of_one_there_is_no_plural() -> None:
    assert [counted(number, "route") for number in (0, 1, 2)] == ["0 routes", "1 route", "2 routes"]


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("::1:9000", "[::1]:9000"),
        ("https://fd00::a:80", "[fd00::a]:80"),
        ("::1", "[address]:port"),
        ("a:b:c", "[add"),
    ],
)
def test_an_ipv6_address_without_brackets_is_shown_with_them(text: str, meant: str) -> None:
    with pytest.raises(InvalidName, match=re.escape(f"an IPv6 address is written {meant}")):
        normal_member(text)


def test_names_sort_as_people_count_however_many_digits_they_have() -> None:
    long = "n" + 5000 * "9"
    wanted = ["10.0.0.9:80", "10.0.0.10:80", "node", "node-1", "node-2", "node-2b", "node-10", "n" + "0" * 9]
    ordered = ["10.0.0.9:80", "10.0.0.10:80", wanted[-1], long, "node", "node-1", "node-2", "node-2b", "node-10"]
    assert sorted([*wanted, long], key=natural) == ordered
