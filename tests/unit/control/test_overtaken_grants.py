"""A reply grants a ticket one slot, where a message had granted it another."""

from slb.control.asks import Asks
from slb.control.batch_builder import BatchBuilder
from slb.control.views import Views

BEAT = 2.0


def builder() -> BatchBuilder:
    """Of a lane that holds one slot, at second 0; Redis has all of it."""
    made = BatchBuilder({"u0": 1}, Asks(), Views())
    made.ran(made.batch(0.0, BEAT, settling=False))
    return made


def test_where_the_other_slot_is_used_the_next_batch_has_all_that_is_held() -> None:
    lane = builder()
    lane.take(7, "u0")
    assert lane.is_overtaken(7)
    batch = lane.batch(0.0, BEAT, settling=False)
    assert (batch.full, batch.took, batch.held) == (True, {}, {"u0": 1})


def test_where_none_was_used_nothing_is_due_for_it() -> None:
    lane = builder()
    lane.take(8, "u0")
    assert not lane.is_overtaken(7)
    batch = lane.batch(0.0, BEAT, settling=False)
    assert (batch.full, batch.took) == (False, {8: "u0"})
