"""What decides in a pool follows from its lane, and the log has the changes."""

from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from slb.admission.pool_mode import PoolMode
from slb.control.lane import Lane
from tests.unit.admission.gate_rig import PlayedLane

POOL = "/p"


def played() -> tuple[PlayedLane, PoolMode]:
    """A lane and the mode that follows from it, which logs whenever the lane changes."""
    lane = PlayedLane(lambda _: mode.log())
    mode = PoolMode(POOL, cast("Lane", lane))
    return lane, mode


@pytest.mark.parametrize(
    ("ready", "settling", "late", "expected"),
    [
        (False, False, False, "local"),
        (False, True, True, "local"),
        (True, True, False, "settling"),
        (True, True, True, "settling"),
        (True, False, True, "late"),
        (True, False, False, "shared"),
    ],
)
async def test_the_mode_is_the_worst_that_holds_of_the_lane(
    ready: bool, settling: bool, late: bool, expected: str
) -> None:
    lane, mode = played()
    lane.turns(ready=ready, settling=settling, late=late)
    assert mode.now == expected


async def test_the_log_has_when_redis_decides_no_more_and_when_it_does_again() -> None:
    lane, _ = played()
    lane.state.error = "gone"
    with capture_logs() as logs:
        for _ in range(2):
            lane.turns(ready=False)
        lane.turns(ready=True, late=True)
        lane.turns(late=False)
    logged = [{name: value for name, value in line.items() if name != "log_level"} for line in logs]
    assert logged == [
        {"event": "ledger_local", "pool": POOL, "error": "gone"},
        {"event": "ledger_shared", "pool": POOL},
    ]


async def test_the_log_has_a_loss_that_is_made_up_for_and_how_many_did_not_help() -> None:
    lane, _ = played()
    lane.epochs.holders = 3
    with capture_logs() as logs:
        for _ in range(2):
            lane.turns(settling=True)
        lane.epochs.unreported = 2
        lane.turns(settling=False)
        logged = [(line["event"], line.get("holders")) for line in logs]
        assert logged == [("ledger_settling", 3), ("ledger_shared", None), ("ledger_unheard", 2)]
        lane.turns(settling=False)
    assert len(logs) == 3


@pytest.mark.parametrize(
    ("state", "events"),
    [({"late": True}, [("ledger_unsure", "late", 1)]), ({"ready": False}, [])],
    ids=["late", "gone"],
)
async def test_grants_made_here_are_logged_while_redis_is_not_known_to_be_gone(
    state: dict[str, Any], events: list[tuple[str, str, int]]
) -> None:
    lane, mode = played()
    lane.turns(**state)
    with capture_logs() as logs:
        for _ in range(2):
            mode.count_unsure()
    assert [(line["event"], line["mode"], line["local_grants"]) for line in logs] == events
