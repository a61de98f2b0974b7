"""What is in flight at one upstream in the fleet: sums, and what is not known."""

from typing import Any

import pytest

from slb.fleet.asks import Ask, read_ask
from slb.fleet.load import Load, in_flight, read_load

NAMES = {"1": "one", "2": "two"}
IDLE, BUSY, UNAWARE = Load(0, 0, True), Load(3, 2, True), Load(0, 0, False)


def test_what_all_have_is_added_up_and_named() -> None:
    assert in_flight({"1": BUSY, "2": BUSY}, NAMES, [], 4) == {
        "inflight": 6,
        "instances": {"one": 3, "two": 3},
        "elsewhere": 0,
        "unknown": [],
        "unaware": [],
        "empty": False,
    }


def test_slots_that_none_of_them_has_are_in_flight_elsewhere() -> None:
    found = in_flight({"1": BUSY, "2": IDLE}, NAMES, [], 7)
    assert (found["inflight"], found["elsewhere"], found["empty"]) == (8, 5, False)
    assert in_flight({"1": BUSY, "2": IDLE}, NAMES, [], 1)["elsewhere"] == 0  # it has ended since


def test_it_is_empty_where_all_have_answered_with_nothing_and_follow_the_drain() -> None:
    assert in_flight({"1": IDLE, "2": IDLE}, NAMES, [], 0)["empty"] is True


@pytest.mark.parametrize(
    ("loads", "silent", "counted", "told"),
    [
        ({"1": IDLE}, [], 0, {"unknown": ["two"]}),
        ({"1": IDLE, "2": IDLE}, ["gone"], 0, {"unknown": ["gone"]}),
        ({"1": IDLE, "2": UNAWARE}, [], 0, {"unaware": ["two"]}),
        ({"1": IDLE, "2": IDLE}, [], None, {"elsewhere": None}),
    ],
)
def test_what_is_not_known_is_named_and_not_empty(
    loads: dict[str, Load], silent: list[str], counted: int | None, told: dict[str, Any]
) -> None:
    found = in_flight(loads, NAMES, silent, counted)
    assert {**told, "inflight": 0, "empty": False}.items() <= found.items()


def test_what_others_send_is_a_count_or_refused() -> None:
    assert read_load({"inflight": -3, "held": 2, "drains": True, "more": 1}) == Load(0, 2, True)
    wrongs: list[Any] = [None, [], {"inflight": "3"}, {"inflight": 1e99}]
    for wrong in wrongs:
        with pytest.raises(ValueError, match="no "):
            read_load(wrong)


def test_older_versions_ask_for_no_upstream() -> None:
    written = Ask("id-1", upstream="10.0.0.1:80").written().decode()
    assert read_ask(written) == Ask("id-1", upstream="10.0.0.1:80")
    assert read_ask(written.replace(',"upstream":"10.0.0.1:80"', "")) == Ask("id-1")
    assert read_ask(Ask("id-1", upstream="x" * 301).written().decode()) is None
