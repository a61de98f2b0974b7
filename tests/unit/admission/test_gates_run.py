"""What the gates do without being called, at which of their looks: nothing here sleeps."""

import asyncio
from contextlib import suppress
from types import SimpleNamespace

import pytest

from tests.unit.admission.gate_rig import CAPPED, QUEUED, Pools
from tests.unit.routing.mirror_rig import A

PER_SECOND = 4
SCORES, IDLE = PER_SECOND, 10 * PER_SECOND
"""At which look scores are compared with the caps, and idle gates taken down."""


async def run(setup: Pools, looks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until there have been so many looks."""
    left = looks + 1

    async def sleep(seconds: float) -> None:
        nonlocal left
        assert seconds == 1 / PER_SECOND
        left -= 1
        if not left:
            raise asyncio.CancelledError

    monkeypatch.setattr("slb.admission.gates.asyncio", SimpleNamespace(sleep=sleep))
    with suppress(asyncio.CancelledError):
        await setup.gates.run()
    assert left == 0


async def test_each_look_shows_a_lane_the_candidates_of_what_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    setup = Pools()
    setup.routes(a=QUEUED)
    setup.visit("/a")
    views = setup.ledger.lanes["/a"].views
    known = dict(views)
    views.clear()
    await run(setup, 1, monkeypatch)
    assert views == known != {}


@pytest.mark.parametrize(("looks", "above"), [(SCORES - 1, 0), (SCORES, 2)])
async def test_each_second_upstreams_above_their_caps_are_counted(
    looks: int, above: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    setup = Pools()
    setup.routes(a=CAPPED)
    setup.ledger.scores = {"/a": {A: 3}}
    await run(setup, looks, monkeypatch)
    assert setup.metrics.ledger.above_cap == above


@pytest.mark.parametrize(("looks", "pools"), [(IDLE - 1, {"/a", "/b"}), (IDLE, {"/b"})])
async def test_after_some_seconds_idle_gates_without_a_route_go(
    looks: int, pools: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    setup = Pools()
    setup.routes(a=CAPPED, b=CAPPED)
    setup.routes(b=CAPPED)
    await run(setup, looks, monkeypatch)
    assert setup.ledger.lanes.keys() == pools
