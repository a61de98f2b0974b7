"""Which asks a lane takes, by how it stands with Redis."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from slb.control.lane import Lane
from slb.control.lane_timing import LaneTiming
from tests.unit.control.asked import Asked


@pytest.mark.parametrize(
    ("capacity", "patient", "taken"), [(1, False, False), (1, True, True), (0, False, True), (0, True, True)]
)
async def test_while_it_settles_an_ask_under_a_cap_is_taken_only_where_it_can_wait(
    capacity: int, patient: bool, taken: bool
) -> None:
    nothing: Any = lambda *_: None  # noqa: E731
    lane = Lane("/p", cast("Any", SimpleNamespace()), lambda: "a-1", 0, LaneTiming(), nothing, nothing, nothing)
    ask = Asked("p", capacity, patient)
    assert lane.takes(ask)
    lane.epochs.settling = True
    assert lane.takes(ask) is taken
