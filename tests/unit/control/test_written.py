"""What an instance keeps of its own changes."""

import pytest

from slb.control import keys, written
from slb.control.history import Snapshot
from slb.control.written import Row, Written
from slb.model import RouteRecord


def join(number: int) -> Row:
    return "join", keys.route_key("/a"), (f"10.0.0.{number}:80",)


def entry(number: int) -> str:
    return keys.membership("/a", f"10.0.0.{number}:80")


def table(*numbers: int) -> Snapshot:
    return Snapshot({"/a": RouteRecord(frozenset(f"10.0.0.{number}:80" for number in numbers))})


def test_only_what_the_table_shows_has_its_number() -> None:
    kept = Written()
    kept.note([join(1), join(2)], [True, True], 7)
    kept.note([("leave", *join(2)[1:])], [True], 8)
    assert dict(kept.shown_in(table(1, 2))) == {entry(1): 7}
    assert dict(kept.shown_in(table(1))) == {entry(1): 7, entry(2): 8}


def test_what_the_log_has_told_is_kept_no_longer_and_what_is_newer_is() -> None:
    kept = Written()
    kept.note([join(1), join(2)], [True, True], 7)
    kept.known(entry(1), 7)
    kept.known(entry(2), 6)
    assert dict(kept.shown_in(table(1, 2))) == {entry(2): 7}


def test_the_oldest_are_forgotten_where_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Written()
    kept.note([join(number) for number in range(3)], [True] * 3, 7)
    monkeypatch.setattr(written, "_MOST", 2)
    kept.note([join(0)], [False], 8)
    assert dict(kept.shown_in(table(0, 1, 2))) == {entry(2): 7, entry(0): 8}
