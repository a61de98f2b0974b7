"""How a lane stands with Redis, by the replies it gets."""

from dataclasses import replace
from typing import Any

from slb.control.batch import Batch
from slb.control.epoch_tracker import EpochTracker
from slb.control.granted import Granted
from slb.control.lane_timing import LaneTiming

TIMING = LaneTiming(lease=10.0, settle=2.0)


class Told:
    """A standing that has heard at second 100 that all is well with `holders` of them."""

    def __init__(self, holders: int = 3) -> None:
        self.epochs = EpochTracker()
        self._seq = 0
        self.hears(100.0, holders=holders, pushed=holders, last=-1)

    def hears(self, moment: float, fresh: bool = True, **said: Any) -> bool:
        """Whether it settles after such a reply."""
        self._seq += 1
        reply = {
            "epoch": "e 1",
            "holders": 3,
            "pushed": 3,
            "last": self._seq - 1,
            "now": int(moment * 1000),
            **said,
        }
        self.epochs.follow(Batch(self._seq, fresh=fresh, full=True), reply, moment, moment, TIMING)
        return self.epochs.settling


def test_the_first_of_all_has_nothing_to_settle() -> None:
    assert not Told(holders=1).epochs.settling


def test_only_the_first_reply_of_another_epoch_says_that_something_was_lost() -> None:
    assert not EpochTracker().has_lost({"epoch": "e 1"})
    told = Told()
    assert not told.epochs.has_lost({"epoch": "e 1"})
    assert told.epochs.has_lost({"epoch": "e 2"})
    told.hears(101.0, epoch="e 2")
    assert not told.epochs.has_lost({"epoch": "e 2"})


def test_those_that_were_known_are_awaited_where_redis_has_forgotten_who_there_was() -> None:
    told = Told()
    assert told.hears(101.0, epoch="e 2", holders=1, pushed=1)
    assert told.hears(101.3, epoch="e 2", holders=2, pushed=2, fresh=False)
    assert not told.hears(101.6, epoch="e 2", holders=3, pushed=3, fresh=False)


def test_those_redis_names_are_awaited_where_more_have_come_than_were_known() -> None:
    told = Told(holders=1)
    assert told.hears(101.0, epoch="e 2", holders=2, pushed=1)
    assert not told.hears(101.3, epoch="e 2", holders=2, pushed=2, fresh=False)


def test_who_does_not_come_back_is_awaited_for_two_seconds_and_not_anew_after_a_second_failure() -> None:
    told = Told()
    assert told.hears(101.0, epoch="e 2", holders=1, pushed=1)
    told.epochs.cut()
    told.epochs.given_up()
    assert not told.epochs.settling
    assert told.hears(102.0, epoch="e 2", holders=1, pushed=1)
    assert not told.hears(103.1, epoch="e 2", holders=1, pushed=1, fresh=False)
    assert (told.epochs.holders, told.epochs.unreported) == (1, 2)


def test_a_number_that_went_back_is_a_loss_too() -> None:
    told = Told()
    assert told.hears(101.0, last=-1, holders=1, pushed=1)


def test_who_left_while_one_was_away_is_not_awaited() -> None:
    told = Told()
    told.epochs.given_up()
    assert not told.hears(101.0, holders=2, pushed=2)


def test_a_name_that_is_not_known_after_a_lease_is_another_from_then_on() -> None:
    told = Told()
    assert told.epochs.renamed({"epoch": "e 1"}, 111.0, TIMING.lease)
    assert not told.hears(111.0, last=-1, holders=2, pushed=2)


def test_a_name_that_is_not_known_within_a_lease_or_in_another_epoch_is_a_loss() -> None:
    told = Told()
    assert not told.epochs.renamed({"epoch": "e 1"}, 109.0, TIMING.lease)
    assert not told.epochs.renamed({"epoch": "e 2"}, 111.0, TIMING.lease)
    assert told.hears(111.0, epoch="e 2", last=-1, holders=1, pushed=1)


def test_a_clock_that_jumps_is_another_redis_to_the_reaper() -> None:
    told = Told()
    assert told.epochs.redis_time(101.0) == 101_000
    told.hears(102.0, now=102_100)
    assert told.epochs.steady_since == 100.0
    told.hears(103.0, now=203_000)
    assert told.epochs.steady_since == 103.0


def test_a_clock_may_gain_half_a_lease_and_no_more() -> None:
    told = Told()
    told.hears(102.0, now=107_000)
    assert told.epochs.steady_since == 100.0
    told.hears(103.0, now=113_001)
    assert told.epochs.steady_since == 103.0


TRUSTING = replace(TIMING, silence=1.5, patience=2.0)


def granted(at: int, epoch: str = "e 1") -> Granted:
    return Granted("/p", at, epoch, ())


def test_a_message_is_trusted_while_its_grants_are_certainly_young() -> None:
    """Redis had shown 102,000 ms by second 102.1 at the latest, and from second 102.0 on."""
    epochs = Told().epochs
    reply = {"epoch": "e 1", "holders": 3, "pushed": 3, "last": 1, "now": 102_000}
    epochs.follow(Batch(2), reply, 102.0, 102.1, TIMING)
    assert epochs.trusts(granted(102_000), 102.2, TRUSTING)
    assert not epochs.trusts(granted(102_000), 102.26, TRUSTING)
    assert not epochs.trusts(granted(101_900), 102.2, TRUSTING)
    assert not epochs.trusts(granted(102_500), 102.2, TRUSTING)
    assert not epochs.trusts(granted(102_000), 102.0, replace(TRUSTING, patience=1.5))


def test_a_message_is_not_trusted_where_it_may_be_another_redis_s() -> None:
    told = Told()
    assert told.epochs.trusts(granted(100_000), 100.0, TRUSTING)
    assert not told.epochs.trusts(granted(100_000, "e 2"), 100.0, TRUSTING)
    told.epochs.cut()
    assert not told.epochs.trusts(granted(100_000), 100.0, TRUSTING)
    assert told.hears(101.0, epoch="e 2", holders=1, pushed=1)
    assert not told.epochs.trusts(granted(101_000, "e 2"), 101.0, TRUSTING)
