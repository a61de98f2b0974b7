"""Where a call's key is found."""

from http.cookies import SimpleCookie
from typing import Any

import pytest
from multidict import CIMultiDict

from slb.client.hash_key import LONGEST_KEY, given, key_of
from slb.client.refusals import CallRefused
from slb.client.target import parse_target

SESSION = CIMultiDict({"X-Tenant": "t1"})


@pytest.mark.parametrize(
    ("hash_key", "path", "options", "key"),
    [
        ("path", "/a//b/./c?q=1", {}, b"/a/b/c"),
        ("ip", "/a", {}, b""),
        ("header:X-Key", "/a", {"headers": {"x-key": "k"}}, b"k"),
        ("header:X-Key", "/a", {"headers": [("X-KEY", "k"), ("x-key", "l")]}, b"k"),
        ("header:X-Key", "/a", {"headers": None}, b""),
        ("header:x-tenant", "/a", {}, b"t1"),
        ("header:x-tenant", "/a", {"headers": {"X-Tenant": "t2"}}, b"t2"),
        ("cookie:sid", "/a", {"cookies": {"sid": "k", "other": "o"}}, b"k"),
        ("cookie:sid", "/a", {"cookies": [("sid", "k")]}, b"k"),
        ("cookie:sid", "/a", {"cookies": SimpleCookie("sid=k")}, b"k"),
        ("cookie:sid", "/a", {"headers": {"cookie": 'a=b; sid="k"'}}, b"k"),
        ("cookie:sid", "/a", {"headers": {"Cookie": "sid=h"}, "cookies": {"sid": "k"}}, b"k"),
        ("cookie:sid", "/a", {"headers": {"Cookie": 'prefs={"a":1}; flag; sid=k'}}, b"k"),
        ("cookie:sid", "/a", {"headers": {"Cookie": "a(b=1; sid=k; sid=l"}}, b"k"),
        ("cookie:sid", "/a", {}, b""),
        ("query:id", "/a?id=7&id=8", {}, b"7"),
        ("query:id", "/a?x=y&id=%C3%A9+b", {}, "é b".encode()),
        ("query:id", "/a?id=7", {"params": {"id": "9"}}, b"7"),
        ("query:id", "/a", {"params": [("id", "9")]}, b"9"),
        ("query:id", "/a", {"params": {"id": 9}}, b"9"),
        ("query:id", "/a?idx=7", {}, b""),
        ("query:id", "/a?id=", {"params": {"id": "9"}}, b""),
        ("query:id", "/a?%69d=%37", {}, b"7"),
        ("query:id", "/a?id=%FF", {}, b"\xff"),
        ("query:id", "/a", {"params": {"id": "a b+é&c"}}, "a b+é&c".encode()),
    ],
)
def test_the_key_that_a_setting_names_is_found(hash_key: str, path: str, options: Any, key: bytes) -> None:
    assert key_of(hash_key)(parse_target(path), options, SESSION) == key


def test_a_key_is_text_or_bytes_and_nothing_else() -> None:
    assert (given("é"), given(b"\xff"), given("")) == ("é".encode(), b"\xff", b"")
    with pytest.raises(TypeError, match="key is int"):
        given(7)  # type: ignore[arg-type]


def test_a_key_may_be_as_long_as_a_head_and_no_longer() -> None:
    assert len(given("k" * LONGEST_KEY)) == LONGEST_KEY
    for long in ("k" * (LONGEST_KEY + 1), b"k" * 2**20):
        with pytest.raises(CallRefused, match=rf"a key of {len(long)} bytes"):
            given(long)
    with pytest.raises(CallRefused, match="a key of 1048576 bytes"):
        key_of("header:x")(parse_target("/"), {"headers": {"X": "k" * 2**20}}, SESSION)
