"""`slb token make`: what it prints is a token that the settings then know."""

import re
from pathlib import Path

import pytest

from slb.config import Settings
from slb.loading import load_settings
from slb.tokens import Keyring
from tests.unit.cli.conftest import Slb


def made(slb: Slb, directory: Path, *words: str) -> tuple[str, Settings]:
    code, out, err = slb("token", "make", *words)
    assert (code, err) == (0, "")
    secret, _, toml = out.partition("\n\n")
    file = directory / "slb.toml"
    file.write_text(toml)
    return secret, load_settings({}, {}, file)


@pytest.mark.parametrize(
    ("words", "rights", "prefixes"),
    [
        ((), ("read",), ()),
        (("--prefix", "/models/flux/"), ("register",), ("/models/flux",)),
        (("--prefix", "/a", "--prefix", "/%22", "--right", "register"), ("register",), ("/a", "/%22")),
        (("--right", "jobs", "--right", "metrics"), ("jobs", "metrics"), ()),
    ],
)
def test_what_is_printed_is_known_with_these_rights(
    slb: Slb, tmp_path: Path, words: tuple[str, ...], rights: tuple[str, ...], prefixes: tuple[str, ...]
) -> None:
    secret, settings = made(slb, tmp_path, "--name", "one", *words)
    assert (settings.tokens["one"].rights, settings.tokens["one"].prefixes) == (rights, prefixes)
    holder = Keyring("", settings.tokens).holder(secret)
    assert holder is not None
    assert holder.name == "one"


def test_no_two_are_alike(slb: Slb, tmp_path: Path) -> None:
    (one, first), (other, second) = made(slb, tmp_path), made(slb, tmp_path)
    assert one != other
    assert re.fullmatch(r"slb_[A-Za-z0-9_-]{43}", one)
    assert first.tokens.keys() != second.tokens.keys()


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        (("--right", "reed"), "--right: Input should be 'read'"),
        (("--prefix", "flux"), "--prefix: path 'flux' does not start with '/'"),
        (("--right", "register"), "register: say with prefixes for which paths"),
        (("--right", "read", "--prefix", "/a"), "prefixes: they are those of the right register"),
        (("--name", "a b"), "a token's name has letters, digits, _ and -"),
        (("--name", ""), "a token's name has letters, digits, _ and -"),
    ],
)
def test_one_that_would_be_refused_is_not_made(slb: Slb, words: tuple[str, ...], fault: str) -> None:
    code, out, err = slb("token", "make", *words)
    assert (code, out) == (2, "")
    assert err.startswith(f"slb: {fault}")
