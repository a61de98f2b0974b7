"""Which pools have a gate, for how long, and what all gates together show."""

import asyncio
from collections import Counter

import pytest

from slb.admission.gates import turn_of
from slb.balance.asking import Turn
from slb.model import RouteSettings
from tests.support.waiting import soon
from tests.unit.admission.gate_rig import CAPPED, NEVER, QUEUED, Pools, Visit
from tests.unit.routing.mirror_rig import A, B, C, record, replace

MOST_AHEAD = 128


@pytest.mark.parametrize(
    ("asked", "turn"),
    [
        ("high", Turn("high", 5, 9)),
        ("low", Turn("low", 1, 9)),
        ("", Turn("free", 1, 9)),
        ("unknown", Turn("free", 1, 9)),
    ],
)
def test_a_request_waits_in_the_class_it_names_or_in_that_of_the_least_weight(asked: str, turn: Turn) -> None:
    settings = RouteSettings.model_validate(
        {"when_full": "queue", "queue_limit": 9, "priorities": "high=5,low=1,free=1"}
    )
    assert turn_of(settings, asked) == turn


def test_without_classes_all_wait_in_one_and_without_a_queue_none_waits() -> None:
    assert turn_of(RouteSettings(when_full="queue", queue_limit=7), "high") == Turn("", 1, 7)
    assert turn_of(RouteSettings(), "") is None


async def test_a_pool_has_one_gate_which_is_there_before_its_first_request() -> None:
    setup = Pools()
    setup.routes(a={**CAPPED, "pool": "/gpu"}, b={**CAPPED, "pool": "/gpu"}, c=CAPPED, plain={})
    assert setup.ledger.lanes.keys() == {"/gpu", "/c"}
    table = setup.mirror.table.routes
    assert setup.gates.of(table["/a"]) is setup.gates.of(table["/b"]) is setup.gates.known("/gpu")
    assert setup.gates.of(table["/c"]) is setup.gates.known("/c")
    assert setup.gates.known("/plain") is None
    assert setup.ledger.lanes.keys() == {"/gpu", "/c"}


async def test_where_there_are_many_pools_most_get_their_gate_with_their_first_request() -> None:
    setup = Pools()
    setup.routes(**{f"r{number}": CAPPED for number in range(MOST_AHEAD + 5)})
    assert len(setup.ledger.lanes) == MOST_AHEAD
    for path in setup.mirror.table.routes:
        setup.visit(path)
    assert len(setup.ledger.lanes) == MOST_AHEAD + 5


async def test_a_pool_that_no_route_names_any_more_keeps_its_gate_until_that_is_idle() -> None:
    setup = Pools()
    setup.routes(a=CAPPED, b=CAPPED)
    visit = setup.visit("/a")
    setup.ledger.lanes["/a"].grant(A)
    setup.routes(b=CAPPED)
    setup.gates.take_down()
    assert setup.ledger.lanes.keys() == {"/a", "/b"}
    visit.handle.release()
    setup.gates.take_down()
    assert setup.ledger.lanes.keys() == {"/b"}
    assert setup.gates.known("/a") is None


async def test_what_was_kept_of_routes_that_have_left_a_pool_goes() -> None:
    setup = Pools()
    setup.routes(a={**CAPPED, "pool": "/gpu"}, b={**CAPPED, "pool": "/gpu"})
    setup.routes(b={**CAPPED, "pool": "/gpu"}, c=CAPPED)
    setup.gates.take_down()
    assert setup.ledger.lanes["/gpu"].kept == [{"/b"}]
    assert setup.ledger.lanes["/c"].kept == [{"/c"}]


async def test_waiting_requests_follow_a_new_table_at_once() -> None:
    setup = Pools()
    setup.routes(a=QUEUED)
    setup.visit("/a")
    replace(setup.mirror, {"/a": record(C, **QUEUED)})
    assert [each.member for each in setup.ledger.lanes["/a"].views["/a"]] == [C]
    assert [each.member for each in setup.ledger.lanes["/a"].dismissed["/a"]] == [C]


async def test_metrics_and_status_show_each_pool() -> None:
    setup = Pools()
    setup.routes(a=QUEUED, b=CAPPED)
    waits = setup.visit("/a")
    lane = setup.ledger.lanes["/a"]
    lane.asked[0].queued(0, 1)
    lane.state.queued, lane.held[A], lane.epochs.holders = 4, 2, 3
    setup.ledger.lanes["/b"].turns(ready=False, silent=True, error="gone")
    setup.ledger.scores = {"/a": {A: 5}, "/b": {B: 6}}
    assert list(setup.metrics.queue.depth()) == [("/a", "", 1)]
    assert dict(setup.metrics.ledger.pools_shared()) == {"/a": True, "/b": False}
    assert setup.metrics.redis.unanswered()
    shown = setup.gates.shown()["pools"]
    assert shown["/a"] == {
        "mode": "shared",
        "error": "",
        "holders": 3,
        "queued": 4,
        "held": {A: 2},
        "waiting": {"/a": {"": 1}},
        "scores": {A: 5},
    }
    unknown = {"holders": None, "queued": None, "scores": None}
    assert shown["/b"] == {"mode": "local", "error": "gone", "held": {}, "waiting": {}, **unknown}
    waits.entry.leave()
    assert list(setup.metrics.queue.depth()) == [("/a", "", 0)]
    setup.ledger.lanes["/b"].turns(ready=True, silent=False, error="")
    assert not setup.metrics.redis.unanswered()


async def test_the_depth_of_each_class_of_a_route_that_queues_is_told_from_0_to_0() -> None:
    setup = Pools()
    setup.routes(a={**QUEUED, "priorities": "high=4,low=1"}, b=QUEUED, c=CAPPED, plain={})
    idle = {("/a", "high", 0), ("/a", "low", 0), ("/b", "", 0)}
    assert set(setup.metrics.queue.depth()) == idle
    route = setup.mirror.table.routes["/b"]
    entry = setup.gates.of(route).enter(route, (), (), Turn("jobs", 1, 9), Visit())
    setup.ledger.lanes["/b"].asked[0].queued(0, 1)
    assert set(setup.metrics.queue.depth()) == {*idle, ("/b", "jobs", 1)}
    entry.leave()
    assert set(setup.metrics.queue.depth()) == {*idle, ("/b", "jobs", 0)}
    setup.routes(c=CAPPED)
    assert list(setup.metrics.queue.depth()) == []


async def test_scores_are_those_of_all_pools_in_which_redis_answers_and_0_of_candidates_that_have_none() -> None:
    setup = Pools()
    setup.routes(a=CAPPED, b=CAPPED, c=CAPPED)
    for path in ("/a", "/c"):
        setup.visit(path)
    setup.ledger.scores = {"/a": {A: 5}, "/b": {A: 2}, "/c": {C: 7}, "/gone": {A: 100}}
    setup.ledger.lanes["/c"].state.ready = False
    assert setup.gates.scores() == Counter({A: 7, B: 0})
    assert dict(setup.metrics.ledger.global_inflight()) == {A: 7, B: 0}


async def test_upstreams_above_their_caps_are_counted_by_what_redis_tells() -> None:
    setup = Pools()
    setup.routes(a=CAPPED)
    setup.ledger.scores = {"/a": {A: 3}}
    setup.gates.look_above()
    assert setup.metrics.ledger.above_cap == 2
    setup.ledger.lanes["/a"].state.ready = False
    setup.gates.look_above()
    setup.ledger.lanes["/a"].state.ready = True
    setup.gates.look_above()
    assert setup.metrics.ledger.above_cap == 4, "it was not known meanwhile"


async def test_all_pools_are_waited_for_until_redis_has_answered_each() -> None:
    setup = Pools()
    setup.routes(a=CAPPED, b=CAPPED)
    opening = asyncio.create_task(setup.gates.opened(NEVER))
    setup.ledger.lanes["/a"].state.answered.set()
    for _ in range(5):
        await asyncio.sleep(0)
    assert not opening.done()
    setup.ledger.lanes["/b"].state.answered.set()
    await soon(opening)


async def test_a_redis_that_does_not_answer_is_waited_for_no_longer_than_that() -> None:
    setup = Pools()
    setup.routes(a=CAPPED)
    await soon(setup.gates.opened(0.01))
