"""Places on a listener: taken, refused, given back."""

from slb.places import Places
from tests.support.memory import kept_of


def test_there_is_room_for_so_many_in_all_and_from_one_address() -> None:
    places: Places[int] = Places(limit=3, per_peer=2, lingering=1)
    assert [places.take(number, "a") for number in (1, 2)] == [True, True]
    assert not places.take(3, "a")
    assert places.turn_away(3)
    assert places.take(4, "b")
    assert not places.take(5, "c")
    assert not places.turn_away(5), "one lingers already"
    assert (list(places.taken), places.rejected) == ([1, 2, 4], {3})


def test_a_place_is_given_back_once() -> None:
    places: Places[int] = Places(limit=1, per_peer=1)
    assert places.take(1, "10.0.0.1")
    assert "10.0.0.1" in kept_of(places, str)
    assert [places.leave(1), places.leave(1), places.leave(2)] == [True, False, False]
    assert "10.0.0.1" not in kept_of(places, str)
    assert places.take(2, "10.0.0.1")


def test_without_limits_every_connection_has_a_place() -> None:
    places: Places[int] = Places()
    assert all(places.take(number, "a") for number in range(1000))
    assert places.turn_away(7)


def test_other_limits_hold_for_connections_that_come_from_then_on() -> None:
    places: Places[int] = Places(limit=1)
    assert places.take(1, "a")
    places.set_limits(2, 0, 0)
    assert places.take(2, "a")
