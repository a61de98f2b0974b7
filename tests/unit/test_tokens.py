"""Whose a secret is, and what its token may do."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from slb.tokens import NOBODY, RIGHTS, Holder, Keyring, Right, Token, digest_of

FLUX = Holder("ci", frozenset({"register"}), ("/models/flux",))


def token(*rights: Right, secret: str = "s", **more: Any) -> Token:
    return Token(rights=rights, sha256=(digest_of(secret),), **more)


def test_a_secret_is_its_tokens_and_no_other_text_is() -> None:
    keyring = Keyring("root", {"grafana": token("metrics", secret="one"), "ui": token("read", secret="two")})
    holders = {text: keyring.holder(text) for text in ("one", "two", "root", "three", "", "on", digest_of("one"))}
    assert {text: each.name for text, each in holders.items() if each} == {
        "one": "grafana",
        "two": "ui",
        "root": "api_token",
    }


def test_while_a_secret_is_replaced_both_are_the_tokens() -> None:
    both = Token(rights=("read",), sha256=(digest_of("old"), digest_of("new")))
    keyring = Keyring("", {"ui": both})
    assert [each.name for text in ("old", "new") if (each := keyring.holder(text))] == ["ui", "ui"]


def test_there_is_a_keyring_without_any_token_and_it_knows_nobody() -> None:
    keyring = Keyring("", {})
    assert not keyring
    assert keyring.holder("") is None
    assert Keyring("x", {})
    assert Keyring("", {"a": token("read")})


@given(st.text())
def test_no_text_that_a_request_can_bring_breaks_the_look_up(text: str) -> None:
    as_read = text.encode("utf-8", "surrogatepass").decode("utf-8", "surrogateescape")
    assert Keyring("a secret", {}).holder(as_read) is None or text == "a secret"


@pytest.mark.parametrize("right", RIGHTS)
def test_admin_is_every_right_and_any_other_is_only_itself(right: Right) -> None:
    assert Holder("root", frozenset({"admin"})).has_any((right,))
    assert NOBODY.has_any((right,))
    assert [each for each in RIGHTS if Holder("x", frozenset({right})).has_any((each,))] == (
        list(RIGHTS) if right == "admin" else [right]
    )


@pytest.mark.parametrize(
    ("path", "covers"),
    [
        ("/models/flux", True),
        ("/models/flux/dev", True),
        ("/models/flux2", False),
        ("/models", False),
        ("/", False),
        ("/models/Flux", False),
    ],
)
def test_a_prefix_covers_its_path_and_what_is_below(path: str, covers: bool) -> None:
    assert FLUX.covers(path) is covers
    assert Holder("all", frozenset({"register"}), ("/",)).covers(path)
    assert Holder("root", frozenset({"admin"})).covers(path)
    assert not Holder("ui", frozenset({"read"}), ("/",)).covers(path)


def test_prefixes_are_kept_in_normal_form() -> None:
    assert token("register", prefixes=["/models//flux/"]).prefixes == ("/models/flux",)


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        ({"rights": ["reed"]}, "'read'"),
        ({"rights": []}, "at least 1"),
        ({"rights": ["register"]}, "say with prefixes for which paths"),
        ({"rights": ["read"], "prefixes": ["/a"]}, "which rights leaves out"),
        ({"rights": ["register"], "prefixes": ["a"]}, "does not start with '/'"),
        ({"rights": ["read"], "sha256": ["abc"]}, "match pattern"),
        ({"rights": ["read"], "sha256": []}, "at least 1"),
        ({"rights": ["read"], "sha256": [digest_of("")]}, "everybody would have it"),
        ({"rights": ["read"], "until": "2030"}, "Extra inputs"),
    ],
)
def test_a_token_that_means_nothing_is_refused(given: dict[str, Any], fault: str) -> None:
    with pytest.raises(ValidationError, match=fault):
        Token(**{"sha256": [digest_of("s")], **given})


def test_it_is_shown_without_anything_of_its_secret() -> None:
    made = token("read", "register", secret="hush", prefixes=["/a", "/b"])
    assert made.shown() == "read, register /a /b"
    assert digest_of("hush") not in repr(made)
