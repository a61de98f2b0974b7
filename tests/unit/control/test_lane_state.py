"""Whether Redis decides for a lane, by its replies."""

from slb.control.lane_state import LaneState


def test_before_the_first_reply_redis_decides_and_has_given_no_place() -> None:
    """The first that is granted takes the place before the first that queues."""
    state = LaneState()
    assert state.is_shared is True
    assert (state.queued, state.number) == (0, 0)


def test_a_lane_falls_behind_once_and_a_reply_brings_it_back() -> None:
    state = LaneState()
    assert [state.fall_behind(), state.fall_behind()] == [True, False]
    assert state.is_shared is False
    state.follow({"queued": 3, "jobs": 2, "number": 7}, 1.0)
    assert (state.is_shared, state.queued, state.others, state.told, state.number) == (True, 3, 1, 1.0, 7)
    state.follow({"queued": 0, "jobs": False, "number": False}, 2.0)
    assert (state.queued, state.number) == (0, 7), "a pool without a queue gives no places"
    assert (state.others, state.told) == (1, 1.0), "jobs were not counted"
