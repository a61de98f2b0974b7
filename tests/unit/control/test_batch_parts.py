"""A lane that holds much sends it part by part: one part with each beat."""

from slb.control.asks import Asks
from slb.control.batch import MOST_HELD
from slb.control.batch_builder import BatchBuilder
from slb.control.views import Views

BEAT = 2.0


def test_each_beat_sends_one_part_and_after_all_of_them_everything_has_been_sent() -> None:
    held = {f"u{number}": number + 1 for number in range(2 * MOST_HELD + 1)}
    lane = BatchBuilder(held, Asks(), Views())
    lane.ran(lane.batch(0.0, BEAT, settling=False))
    sent: dict[str, int] = {}
    for number in range(1, 4):
        now = number * BEAT
        assert lane.is_due(now)
        batch = lane.batch(now, BEAT, settling=False)
        assert (batch.full, batch.beat, batch.holds) == (False, True, len(held))
        assert 0 < len(batch.held) <= MOST_HELD
        assert not sent.keys() & batch.held.keys()
        assert not lane.is_due(now + BEAT / 2), "the next part waits for the next beat"
        sent |= batch.held
    assert sent == held
