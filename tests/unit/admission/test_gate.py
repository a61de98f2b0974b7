"""What a gate makes of a request, by its lane's state of Redis."""

import asyncio

import pytest
from structlog.testing import capture_logs

from slb.admission.explain import last_seen
from slb.control.batch import Seen
from slb.control.lane_timing import LaneTiming
from tests.support.waiting import eventually
from tests.unit.admission.gate_rig import CAPPED, NEVER, PATH, QUEUED, Setup
from tests.unit.routing.mirror_rig import A, B, C, replace

BRIEF = LaneTiming(settle=0.0, silence=0.01)
"""A request that may not queue waits 10 ms for Redis."""


# -- Redis decides


async def test_a_slot_that_redis_grants_is_held_until_its_handle_is_released() -> None:
    setup = Setup(A, B, **CAPPED)
    visit = setup.visit()
    assert [each.member for each in setup.lane.views[PATH]] == [A, B]
    setup.lane.grant(B)
    assert visit.answers == [B]
    assert visit.entry.chosen == B
    assert not setup.lane.released
    visit.handle.release()
    visit.handle.release()
    assert setup.lane.released == [B]
    assert setup.metrics.ledger.local_decisions == 0


async def test_a_refusal_is_passed_on_counted_and_explained() -> None:
    setup = Setup(A, **CAPPED)
    visit = setup.visit()
    setup.lane.asked[0].refused("pool_saturated")
    assert visit.answers == ["pool_saturated"]
    assert visit.detail == "all upstreams of /p have as many requests in flight as they may"
    assert (visit.entry.reason, dict(setup.metrics.queue.shed)) == ("pool_saturated", {"pool_saturated": 1})


async def test_a_request_that_has_tried_all_upstreams_is_refused_without_asking() -> None:
    setup = Setup(A, B, **CAPPED)
    assert setup.visit(avoided=[A, B]).answers == ["no_upstream"]
    assert not setup.lane.asked
    assert not setup.visit(avoided=[A]).answers
    assert setup.lane.asked[0].avoid == (A,)


async def test_a_slot_that_comes_for_a_request_that_has_left_is_given_back() -> None:
    setup = Setup(A, **CAPPED)
    visit = setup.visit()
    visit.entry.leave()
    visit.entry.leave()
    assert setup.lane.left == [visit.entry]
    setup.lane.grant(A)
    assert (visit.answers, setup.lane.released) == ([], [A])
    visit.entry.refused("pool_saturated")
    assert (visit.answers, dict(setup.metrics.queue.shed)) == ([], {})


async def test_a_slot_of_an_upstream_that_has_left_goes_back_and_its_request_asks_again() -> None:
    setup = Setup(A, B, **CAPPED)
    visit = setup.visit()
    setup.route(B, **CAPPED)
    setup.lane.grant(A)
    assert (visit.answers, setup.lane.released) == ([], [A])
    assert [each.member for each in setup.lane.asked[0].candidates] == [B]
    setup.lane.grant(B)
    assert visit.answers == [B]


@pytest.mark.parametrize("left", [(A,), ()])
async def test_a_request_that_asks_again_is_refused_where_nothing_is_left_for_it(
    left: tuple[str, ...],
) -> None:
    setup = Setup(A, B, **CAPPED)
    visit = setup.visit(avoided=[A])
    setup.route(*left, **CAPPED)
    setup.lane.grant(B)
    assert (visit.answers, setup.lane.released) == (["no_upstream"], [B])


async def test_a_request_whose_route_has_gone_meanwhile_is_refused_when_it_asks_again() -> None:
    setup = Setup(A, **CAPPED)
    visit = setup.visit()
    replace(setup.mirror, {})
    setup.lane.turns([setup.lane.asked.pop()])
    assert visit.answers == ["no_upstream"]


async def test_the_order_of_a_policy_is_kept_and_those_that_fade_in_come_last() -> None:
    setup = Setup(A, B, C, max_inflight="1", policy="round_robin")
    orders = []
    for _ in range(3):
        setup.visit(deprioritized=[B])
        asked = setup.lane.asked.pop()
        assert (asked.ordered, asked.reluctant) == (True, (B,))
        orders.append([each.member for each in asked.candidates])
    assert {each[-1] for each in orders} == {B}
    assert [each[0] for each in orders] in ([A, C, A], [C, A, C])


async def test_an_ordered_request_that_asks_again_keeps_its_order_among_those_that_are_left() -> None:
    setup = Setup(A, B, max_inflight="1", policy="round_robin")
    for _ in range(2):
        setup.visit()
    asked, setup.lane.asked = setup.lane.asked, []
    orders = [[each.member for each in one.candidates] for one in asked]
    assert sorted(orders) == [[A, B], [B, A]]
    setup.route(A, B, C, max_inflight="1", policy="round_robin")
    setup.lane.turns(asked)
    assert [[each.member for each in one.candidates] for one in setup.lane.asked] == [[*each, C] for each in orders]


async def test_requests_that_wait_follow_what_becomes_of_their_route() -> None:
    setup = Setup(A, **QUEUED)
    setup.visit()
    setup.route(B, **QUEUED)
    setup.gate.refresh()
    candidates = setup.gate.candidates.of(setup.mirror.table.routes[PATH])
    assert [each.member for each in candidates] == [B]
    assert setup.lane.views[PATH] == setup.lane.dismissed[PATH] == candidates
    replace(setup.mirror, {})
    setup.gate.refresh()
    assert setup.lane.views[PATH] == setup.lane.dismissed[PATH] == ()


async def test_a_gate_without_waiting_requests_refreshes_nothing() -> None:
    setup = Setup(A, **QUEUED)
    setup.gate.refresh()
    assert not setup.lane.dismissed


# -- the queue


async def test_a_request_that_waits_is_counted_once_until_it_is_answered() -> None:
    setup = Setup(A, **QUEUED, priorities="high=2,low=1")
    visit = setup.visit(priority="low")
    for position in (3, 1):
        setup.lane.asked[0].queued(position, 17)
    assert dict(setup.gate.waiting) == {(PATH, "low"): 1}
    assert dict(setup.metrics.queue.positions[PATH]) == {"count": 1, "sum": 3}
    assert (visit.entry.wait.position, visit.entry.number, setup.gate.is_idle) == (3, 17, False)
    setup.lane.grant(A)
    assert (visit.answers, dict(setup.gate.waiting)) == ([A], {})
    assert sum(setup.metrics.queue.wait[PATH].counts) == 1
    assert not setup.gate.is_idle
    visit.handle.release()
    assert setup.gate.is_idle


async def test_one_of_several_that_wait_may_leave() -> None:
    setup = Setup(A, **QUEUED)
    one, other = setup.visit(), setup.visit()
    for each in setup.lane.asked:
        each.queued(0, 1)
    assert dict(setup.gate.waiting) == {(PATH, ""): 2}
    one.entry.leave()
    assert dict(setup.gate.waiting) == {(PATH, ""): 1}
    assert not other.answers


async def test_a_request_that_is_granted_at_once_has_not_queued() -> None:
    setup = Setup(A, **QUEUED)
    setup.lane.state.number = 40
    visit = setup.visit()
    setup.lane.grant(A)
    assert PATH not in setup.metrics.queue.wait
    assert visit.entry.number == 41, "a further attempt comes before all that queue from now on"


async def test_a_further_attempt_has_the_place_of_the_first() -> None:
    setup = Setup(A, B, **QUEUED)
    first = setup.visit()
    setup.lane.asked[0].queued(2, 17)
    setup.lane.grant(A)
    second = setup.visit(avoided=[A], earlier=first)
    assert (second.entry.arrival, second.entry.number, second.entry.wait.position) == (first.entry.arrival, 17, 2)
    assert second.entry.wait.left <= first.entry.wait.left
    other = setup.visit()
    assert other.entry.arrival > first.entry.arrival


async def test_a_request_waits_for_its_queue_timeout_and_no_longer() -> None:
    setup = Setup(A, **QUEUED, queue_timeout="10ms")
    visit = setup.visit()
    setup.lane.asked[0].queued(0, 1)
    await eventually(lambda: bool(visit.answers))
    assert (visit.answers, setup.lane.left, dict(setup.gate.waiting)) == (["queue_timeout"], [visit.entry], {})


# -- Redis does not answer in time


async def test_without_redis_a_request_is_decided_by_what_is_held_here() -> None:
    setup = Setup(A, **CAPPED)
    setup.lane.turns(ready=False)
    one, other = setup.visit(), setup.visit()
    assert (one.answers, other.answers) == ([A], ["pool_saturated"])
    ledger = setup.metrics.ledger
    assert (ledger.local_decisions, ledger.local_grants, setup.lane.says_all) == (2, 1, 1)
    assert not setup.lane.asked
    one.handle.release()
    assert setup.visit().answers == [A]


async def test_a_grant_without_a_cap_is_none_that_may_be_one_too_many() -> None:
    setup = Setup(A, policy="least_inflight")
    setup.lane.turns(ready=False)
    assert setup.visit().answers == [A]
    assert (setup.metrics.ledger.local_decisions, setup.metrics.ledger.local_grants) == (1, 0)


async def test_where_the_cap_is_worth_more_than_an_answer_a_request_is_refused() -> None:
    setup = Setup(A, **CAPPED, when_unsure="refuse")
    setup.lane.turns(ready=False)
    visit = setup.visit()
    assert (visit.answers, setup.metrics.ledger.local_decisions) == (["slots_unknown"], 0)
    assert visit.detail == "Redis does not tell in time which slots of /p are free"


async def test_to_refuse_means_nothing_where_there_is_no_cap() -> None:
    setup = Setup(A, policy="least_inflight", when_unsure="refuse")
    setup.lane.turns(ready=False)
    assert setup.visit().answers == [A]


async def test_an_instance_may_use_its_part_of_a_capacity_by_the_larger_of_two_counts() -> None:
    setup = Setup(A, **{**CAPPED, "max_inflight": "12"})
    setup.instances = 2
    (candidate,) = setup.gate.candidates.of(setup.mirror.table.routes[PATH])
    assert setup.gate.local.capacity(candidate) == 6
    setup.lane.epochs.holders = 3
    assert setup.gate.local.capacity(candidate) == 4


async def test_a_request_that_waits_here_goes_on_waiting_at_redis_when_that_is_back() -> None:
    setup = Setup(A, **QUEUED)
    setup.lane.turns(ready=False)
    setup.visit()
    waiting = setup.visit()
    assert dict(setup.gate.waiting) == {(PATH, ""): 1}
    setup.lane.turns(ready=True)
    assert setup.lane.asked == [waiting.entry]
    assert dict(setup.gate.waiting) == {(PATH, ""): 1}
    setup.lane.grant(A)
    assert (waiting.answers, dict(setup.gate.waiting)) == ([A], {})


async def test_a_request_that_waits_here_gets_the_slot_that_is_released_or_leaves() -> None:
    setup = Setup(A, **QUEUED)
    setup.lane.turns(ready=False)
    first, leaves, second = (setup.visit() for _ in range(3))
    leaves.entry.leave()
    assert not setup.lane.left
    first.handle.release()
    assert (leaves.answers, second.answers) == ([], [A])


async def test_a_request_that_redis_does_not_answer_in_time_is_decided_here_or_refused() -> None:
    """Its setting is `wait`: so it is patient, but cannot queue."""
    capped = Setup(A, **CAPPED, when_unsure="wait")
    free = Setup(A, policy="least_inflight", when_unsure="wait")
    capped.lane.timing = free.lane.timing = BRIEF
    visits = [capped.visit(), free.visit()]
    await eventually(lambda: all(each.answers for each in visits))
    assert [each.answers for each in visits] == [["slots_unknown"], [A]]
    assert [setup.lane.left for setup in (capped, free)] == [[each.entry] for each in visits]


async def test_a_request_that_is_answered_in_time_is_answered_once() -> None:
    setup = Setup(A, **CAPPED, when_unsure="wait")
    setup.lane.timing = BRIEF
    visit = setup.visit()
    setup.lane.grant(A)
    later = setup.visit()
    await eventually(lambda: bool(later.answers))
    assert visit.answers == [A]


# -- what is logged of it


async def test_slots_given_out_while_redis_is_late_are_logged_the_first_at_once() -> None:
    setup = Setup(A, **{**CAPPED, "max_inflight": "3"})
    setup.lane.turns(late=True, taking=False)
    with capture_logs() as logs:
        assert [setup.visit().answers for _ in range(2)] == [[A], [A]]
    logged = [(line["event"], line["pool"], line["mode"], line["local_grants"]) for line in logs]
    assert logged == [("ledger_unsure", PATH, "late", 1)]
    assert setup.metrics.ledger.local_grants == 2


async def test_the_last_decision_is_the_later_of_those_of_redis_and_those_made_here() -> None:
    setup = Setup(A, **CAPPED)
    assert last_seen(setup.gate, PATH) is None
    setup.lane.turns(ready=False)
    here = setup.visit().entry
    assert shown(setup) == (here, {})
    now = asyncio.get_running_loop().time()
    setup.lane.explained.seen[PATH] = Seen(here, {A: 7}, now + NEVER)
    assert shown(setup) == (here, {A: 7})
    setup.lane.explained.seen[PATH] = Seen(here, {A: 7}, now - NEVER)
    assert shown(setup) == (here, {})
    setup.gate.keep_views({PATH})
    assert shown(setup) == (here, {})
    setup.gate.keep_views(set())
    assert last_seen(setup.gate, PATH) is None
    assert setup.lane.kept == [{PATH}, set()]


def shown(setup: Setup) -> tuple[object, object]:
    """Who asked last, and what it found."""
    seen = last_seen(setup.gate, PATH)
    assert seen is not None
    return seen.ask, seen.scores
