"""An upstream that comes back is tried by one instance of the fleet at a time."""

from random import Random

import pytest

from slb.balance.choice import choose
from slb.routing.passive import PROBED, STUCK, Passive
from slb.routing.turn import LASTS, Say, Turn
from tests.unit.health.fleet import Clock, Routes

SICK = "u1:80"


class Instance(Routes):
    def __init__(self, fleet: "Fleet", number: int) -> None:
        super().__init__()
        self._fleet = fleet
        self.passive = Passive(
            self.mirror,
            self.availability,
            self.metrics.health,
            fleet.clock,
            lambda: None,
            fleet.publish,
            fleet.tell,
            lambda: 3,
            number=number,
        )
        self.members("/", 4)

    @property
    def may(self) -> bool:
        """Whether a request would be sent to the one that comes back."""
        live = self.live(1)
        return live.available and not live.is_probed

    def asked(self) -> None:
        """A request comes, and goes by the policy to an upstream that fails or answers elsewhere."""
        choose(self.route().policy, self.route().view, b"", frozenset(), self._fleet.clock, Random(1))

    def serves(self, number: int) -> None:
        live = self.live(number)
        live.answered_at = live.alive_at = self._fleet.clock()
        self.passive.answered(live, self.route())

    def fails(self) -> None:
        self.passive.failed(self.live(1), "upstream_reset", self.route())


class Fleet:
    """Three instances, and a Redis that gives all of them all messages in one order, unless it is `away`."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.away = False
        self._waiting: list[tuple[str, str, int]] = []
        self.said: list[int] = []
        self.instances = [Instance(self, number) for number in (1, 2, 3)]

    def publish(self, about: str, news: str, number: int) -> None:
        self._waiting.append((about, news, number))

    def tell(self) -> None:
        """What failures added is told, as by the service."""
        for each in self.instances:
            for told in list(each.passive.judge.telling()):
                for other in self.instances:
                    if other is not each and told.added:
                        other.passive.heard(told.path, told.upstream.member, told.added, told.answers)

    def _deliver(self) -> None:
        while self._waiting:
            about, news, number = self._waiting.pop(0)
            if news == PROBED:
                self.said.append(number)
            if not self.away:
                for each in self.instances:
                    each.passive.receive(about, news, number)

    def passes(self, seconds: float) -> None:
        for _ in range(round(seconds / 0.5)):
            self.clock.passes(0.5)
            for each in self.instances:
                each.passive.sweep()
            self._deliver()

    @property
    def may(self) -> list[bool]:
        return [each.may for each in self.instances]

    def ejected(self) -> "Fleet":
        """It is stuck, and all have ejected it."""
        for each in self.instances:
            each.passive.receive(SICK, STUCK)
        assert self.may == [False] * 3
        self.passes(9.5)
        assert self.may == [False] * 3
        return self


@pytest.fixture
def fleet() -> Fleet:
    return Fleet().ejected()


def test_one_instance_tries_it_and_the_others_wait_for_as_long_as_it_does(fleet: Fleet) -> None:
    fleet.passes(0.5)
    assert fleet.may == [True, False, False], "the first whose message came"
    assert fleet.said == [1, 2, 3]
    fleet.instances[0].live(1).inflight = 1
    fleet.passes(20)
    assert fleet.may == [False] * 3
    assert set(fleet.said[3:]) == {1}


def test_a_probe_that_fails_leaves_it_out_for_all_and_is_one_for_each_time(fleet: Fleet) -> None:
    for seconds in (20.0, 40.0, 80.0):
        probes = 0
        for _ in range(100):
            fleet.passes(0.5)
            trying = [each for each in fleet.instances if each.may]
            probes += len(trying)
            for each in trying:
                each.fails()
            if probes:
                break
        assert probes == 1
        fleet.passes(seconds - 0.5)
        assert fleet.may == [False] * 3
        assert not any(each.live(1).available for each in fleet.instances)


def test_an_instance_without_requests_gives_the_turn_to_the_first_that_has_some(fleet: Fleet) -> None:
    fleet.passes(0.5)
    assert fleet.may == [True, False, False]
    fleet.passes(60)
    assert fleet.may == [True, False, False], "nobody asks"
    fleet.instances[2].asked()
    fleet.passes(0.5)
    assert fleet.may == [False, False, True], "the next request there is the probe"
    fleet.passes(60)
    assert fleet.may == [False, False, True]


def test_where_requests_come_seldom_and_to_one_after_the_other_the_turn_stays_until_it_is_used(
    fleet: Fleet,
) -> None:
    holders = []
    for number in [0, 1, 2] * 4:
        fleet.passes(20)
        holders.append(fleet.may)
        fleet.instances[number].asked()
    assert holders[0] == [True, False, False]
    assert holders[3:] == holders[2:-1], "it does not wander from one to the next"
    assert sum(holders[-1]) == 1


def test_one_that_has_requests_gives_the_turn_to_one_that_has_more_of_them(fleet: Fleet) -> None:
    fleet.passes(0.5)
    fleet.instances[0].asked()
    fleet.passes(1)
    for expected in ([True, False, False], [False, True, False]):
        fleet.instances[1].asked()
        fleet.passes(1)
        assert fleet.may == expected


def test_one_whose_request_is_under_way_gives_the_turn_to_nobody(fleet: Fleet) -> None:
    fleet.passes(0.5)
    fleet.instances[0].live(1).inflight = 1
    for _ in range(20):
        fleet.instances[1].asked()
        fleet.passes(1)
        assert fleet.may == [False] * 3


def test_the_turn_of_one_that_dies_is_over_after_seconds(fleet: Fleet) -> None:
    fleet.passes(0.5)
    assert fleet.may == [True, False, False]
    fleet.instances.pop(0)
    fleet.passes(LASTS + 0.5)
    assert fleet.may == [True, False]


def test_a_probe_that_is_answered_ends_the_turns_of_all(fleet: Fleet) -> None:
    fleet.passes(0.5)
    fleet.instances[0].live(1).inflight = 1
    fleet.passes(5)
    fleet.instances[0].live(1).inflight = 0
    fleet.instances[0].serves(1)
    said = len(fleet.said)
    fleet.passes(0.5)
    assert fleet.may == [True] * 3
    fleet.passes(5)
    assert (fleet.may, len(fleet.said)) == ([True] * 3, said)


def test_a_request_that_hangs_there_does_not_keep_the_turn_for_good(fleet: Fleet) -> None:
    fleet.passes(0.5)
    fleet.instances[0].live(1).inflight = 1
    fleet.passes(29)
    assert fleet.may == [False] * 3
    for _ in range(3):
        fleet.passes(LASTS + 0.5)
        assert fleet.may in ([False, True, False], [False, False, True])


def test_without_redis_each_instance_goes_by_itself(fleet: Fleet) -> None:
    fleet.away = True
    fleet.passes(0.5)
    assert fleet.may == [False] * 3
    fleet.passes(LASTS)
    assert fleet.may == [True] * 3


def test_one_that_comes_later_does_not_take_the_turn_of_another() -> None:
    turn = Turn()
    turn.heard(is_own=False, tries=False, now=100.0)
    assert turn.look(tries=False, has_requests=False, now=100.0 + LASTS - 0.1) is Say.NOTHING
    assert turn.is_elsewhere
    assert turn.look(tries=False, has_requests=False, now=100.0 + LASTS) is Say.OURS
    turn.heard(is_own=False, tries=False, now=100.0 + LASTS)
    turn.heard(is_own=True, tries=False, now=100.0 + LASTS)
    assert turn.is_elsewhere, "another was first"
