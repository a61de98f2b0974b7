"""What an instance keeps of its own changes."""

import pytest

from slb.control import keys, written
from slb.control.written import Row, Written


def join(number: int) -> Row:
    return "join", keys.route_key("/a"), (f"10.0.0.{number}:80",)


def entry(number: int) -> str:
    return keys.membership("/a", f"10.0.0.{number}:80")


def made(kept: Written) -> dict[str, tuple[int, object]]:
    return {entry: (number, value) for entry, number, value in kept.made()}


def test_what_was_made_last_has_its_number() -> None:
    kept = Written()
    kept.note([join(1), join(2)], [True, True], 7)
    kept.note([("leave", *join(2)[1:])], [True], 8)
    assert made(kept) == {entry(1): (7, True), entry(2): (8, False)}


def test_of_a_hash_each_field_was_made_something_or_all_of_it() -> None:
    kept, key = Written(), keys.settings_key("/a")
    kept.note([("replace", key, ("policy", "p2c"))], [True], 7)
    kept.note([("set", key, ("retries", "2", "policy", "random")), ("unset", key, ("hash_key",))], [True, False], 8)
    assert made(kept) == {
        key: (7, {"policy": "p2c"}),
        f"{key} retries": (8, {"retries": "2"}),
        f"{key} policy": (8, {"policy": "random"}),
        f"{key} hash_key": (8, {}),
    }


def test_what_the_log_has_shown_is_kept_no_longer_and_what_is_newer_is() -> None:
    kept = Written()
    kept.note([join(1), join(2)], [True, True], 7)
    kept.known(entry(1), 7)
    kept.known(entry(2), 6)
    assert made(kept) == {entry(2): (7, True)}


def test_the_oldest_are_forgotten_where_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Written()
    kept.note([join(number) for number in range(3)], [True] * 3, 7)
    monkeypatch.setattr(written, "_MOST", 2)
    kept.note([join(0)], [False], 8)
    assert made(kept) == {entry(2): (7, True), entry(0): (8, True)}
