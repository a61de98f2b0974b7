"""How a lane stands with Redis, by the replies it gets."""

from dataclasses import replace
from typing import Any

from slb.control.batch import Batch
from slb.control.epoch_tracker import EpochTracker
from slb.control.granted import Granted
from slb.control.lane_timing import LaneTiming

TIMING = LaneTiming(lease=10.0, settle=2.0)


class Tracked:
    """An `EpochTracker` that was answered at second 100 that all is well with `holders` of them."""

    def __init__(self, holders: int = 3) -> None:
        self.epochs = EpochTracker()
        self._seq = 0
        self.follows(100.0, holders=holders, pushed=holders, last=-1)

    def follows(self, moment: float, fresh: bool = True, **fields: Any) -> bool:
        """Whether it settles after such a reply."""
        self._seq += 1
        reply = {
            "epoch": "e 1",
            "holders": 3,
            "pushed": 3,
            "last": self._seq - 1,
            "now": int(moment * 1000),
            **fields,
        }
        self.epochs.follow(Batch(self._seq, fresh=fresh, full=True), reply, moment, moment, TIMING)
        return self.epochs.settling


def test_the_first_of_all_has_nothing_to_settle() -> None:
    assert not Tracked(holders=1).epochs.settling


def test_only_the_first_reply_of_another_epoch_shows_that_something_was_lost() -> None:
    assert not EpochTracker().has_lost({"epoch": "e 1"})
    tracked = Tracked()
    assert not tracked.epochs.has_lost({"epoch": "e 1"})
    assert tracked.epochs.has_lost({"epoch": "e 2"})
    tracked.follows(101.0, epoch="e 2")
    assert not tracked.epochs.has_lost({"epoch": "e 2"})


def test_holders_that_were_known_are_awaited_where_redis_has_lost_them() -> None:
    tracked = Tracked()
    assert tracked.follows(101.0, epoch="e 2", holders=1, pushed=1)
    assert tracked.follows(101.3, epoch="e 2", holders=2, pushed=2, fresh=False)
    assert not tracked.follows(101.6, epoch="e 2", holders=3, pushed=3, fresh=False)


def test_those_redis_names_are_awaited_where_more_have_come_than_were_known() -> None:
    tracked = Tracked(holders=1)
    assert tracked.follows(101.0, epoch="e 2", holders=2, pushed=1)
    assert not tracked.follows(101.3, epoch="e 2", holders=2, pushed=2, fresh=False)


def test_a_holder_that_does_not_come_back_is_awaited_for_two_seconds_and_not_anew_after_a_second_failure() -> None:
    tracked = Tracked()
    assert tracked.follows(101.0, epoch="e 2", holders=1, pushed=1)
    tracked.epochs.cut()
    tracked.epochs.given_up()
    assert not tracked.epochs.settling
    assert tracked.follows(102.0, epoch="e 2", holders=1, pushed=1)
    assert not tracked.follows(103.1, epoch="e 2", holders=1, pushed=1, fresh=False)
    assert (tracked.epochs.holders, tracked.epochs.unreported) == (1, 2)


def test_a_number_that_went_back_is_a_loss_too() -> None:
    tracked = Tracked()
    assert tracked.follows(101.0, last=-1, holders=1, pushed=1)


def test_a_holder_that_left_while_one_was_away_is_not_awaited() -> None:
    tracked = Tracked()
    tracked.epochs.given_up()
    assert not tracked.follows(101.0, holders=2, pushed=2)


def test_a_name_that_is_not_known_after_a_lease_is_another_from_then_on() -> None:
    tracked = Tracked()
    assert tracked.epochs.renamed({"epoch": "e 1"}, 111.0, TIMING.lease)
    assert not tracked.follows(111.0, last=-1, holders=2, pushed=2)


def test_a_name_that_is_not_known_within_a_lease_or_in_another_epoch_is_a_loss() -> None:
    tracked = Tracked()
    assert not tracked.epochs.renamed({"epoch": "e 1"}, 109.0, TIMING.lease)
    assert not tracked.epochs.renamed({"epoch": "e 2"}, 111.0, TIMING.lease)
    assert tracked.follows(111.0, epoch="e 2", last=-1, holders=1, pushed=1)


def test_a_clock_that_jumps_is_another_redis_to_the_reaper() -> None:
    tracked = Tracked()
    assert tracked.epochs.redis_time(101.0) == 101_000
    tracked.follows(102.0, now=102_100)
    assert tracked.epochs.steady_since == 100.0
    tracked.follows(103.0, now=203_000)
    assert tracked.epochs.steady_since == 103.0


def test_a_clock_may_gain_half_a_lease_and_no_more() -> None:
    tracked = Tracked()
    tracked.follows(102.0, now=107_000)
    assert tracked.epochs.steady_since == 100.0
    tracked.follows(103.0, now=113_001)
    assert tracked.epochs.steady_since == 103.0


TRUSTING = replace(TIMING, silence=1.5, patience=2.0)


def granted(at: int, epoch: str = "e 1") -> Granted:
    return Granted("/p", at, epoch, ())


def test_a_message_is_trusted_while_its_grants_are_certainly_young() -> None:
    """Redis had shown 102,000 ms by second 102.1 at the latest, and from second 102.0 on."""
    epochs = Tracked().epochs
    reply = {"epoch": "e 1", "holders": 3, "pushed": 3, "last": 1, "now": 102_000}
    epochs.follow(Batch(2), reply, 102.0, 102.1, TIMING)
    assert epochs.trusts(granted(102_000), 102.2, TRUSTING)
    assert not epochs.trusts(granted(102_000), 102.26, TRUSTING)
    assert not epochs.trusts(granted(101_900), 102.2, TRUSTING)
    assert not epochs.trusts(granted(102_500), 102.2, TRUSTING)
    assert not epochs.trusts(granted(102_000), 102.0, replace(TRUSTING, patience=1.5))


def test_a_message_is_not_trusted_where_it_may_be_another_redis_s() -> None:
    tracked = Tracked()
    assert tracked.epochs.trusts(granted(100_000), 100.0, TRUSTING)
    assert not tracked.epochs.trusts(granted(100_000, "e 2"), 100.0, TRUSTING)
    tracked.epochs.cut()
    assert not tracked.epochs.trusts(granted(100_000), 100.0, TRUSTING)
    assert tracked.follows(101.0, epoch="e 2", holders=1, pushed=1)
    assert not tracked.epochs.trusts(granted(101_000, "e 2"), 101.0, TRUSTING)
