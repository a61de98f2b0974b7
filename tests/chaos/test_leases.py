"""When a lease is known to have ended, as the upstreams see it."""

from tests.chaos.checker import Checker
from tests.chaos.history import Event, Expired, Granted, History, Released, Returned
from tests.chaos.upstream import Leases


class World:
    """One upstream with one slot, and a clock that each event moves on by a second."""

    def __init__(self) -> None:
        self.now = 0.0
        self.history = History(lambda: self.now)
        self.leases = Leases(self.history)

    def begins(self, ask: str, instance: str) -> None:
        self.leases.began(Granted(self._later(), ask, instance, "/p", "u", "batch"))

    def ends(self, ask: str, instance: str) -> None:
        self._later()
        self.leases.ended(ask, instance)

    def stops(self, instance: str) -> None:
        self._later()
        self.leases.stopped(instance)

    def goes_on(self, instance: str) -> None:
        self._later()
        self.leases.goes_on(instance)

    def loses_its_lease(self, instance: str) -> None:
        self.history.add(Expired(self._later(), instance))

    def has_a_lease_again(self, instance: str) -> None:
        self.history.add(Returned(self._later(), instance))

    def faults(self) -> list[str]:
        return [each.rule for each in Checker(self.history, {"/p": {"u": 1}}).check().violations]

    def released(self) -> list[tuple[float, str]]:
        events: list[Event] = self.history.events
        return [(event.time, event.ask) for event in events if isinstance(event, Released)]

    def _later(self) -> float:
        self.now += 1
        return self.now


def test_what_ended_while_an_instance_was_frozen_may_be_free_before_redis_knows_the_instance_again() -> None:
    """It gives back what has ended, and only then gets a new lease: the next may have the slot by then."""
    world = World()
    world.begins("a", "one")
    world.stops("one")
    world.ends("a", "one")
    world.loses_its_lease("one")
    world.begins("b", "two")
    world.goes_on("one")
    world.has_a_lease_again("one")
    world.ends("b", "two")
    world.begins("c", "two")
    world.ends("c", "two")
    assert world.released() == [(6, "a"), (8, "b"), (10, "c")]
    assert world.faults() == []


def test_what_ends_after_it_goes_on_is_free_at_once() -> None:
    world = World()
    world.begins("a", "one")
    world.stops("one")
    world.goes_on("one")
    world.ends("a", "one")
    world.begins("b", "two")
    world.ends("b", "two")
    assert world.released() == [(4, "a"), (6, "b")]
    assert world.faults() == []


def test_what_ends_while_it_is_frozen_is_its_own_until_it_goes_on_or_its_lease_ends() -> None:
    world = World()
    world.begins("a", "one")
    world.stops("one")
    world.ends("a", "one")
    world.begins("b", "two")
    world.ends("b", "two")
    assert world.released() == [(5, "b")]
    assert world.faults() == ["above capacity", "never released"]
