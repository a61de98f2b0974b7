"""Why a request went where it went: the verdict on each member, by what its decision found."""

import asyncio
from collections.abc import Mapping

import pytest

from slb.admission.explain import Explainer
from slb.admission.shown import Decision
from slb.control.batch import Seen
from tests.unit.admission.gate_rig import Pools, Visit
from tests.unit.routing.mirror_rig import A, B, C, D, record, replace

PATH = "/p"
LEAST = {"policy": "least_inflight", "max_inflight": "4", "when_full": "queue"}
ORDERED = {**LEAST, "policy": "round_robin"}


class Explained:
    """One route with four members, and what is reported of its last decision, which was made a quarter of a second
    ago and found these scores."""

    def __init__(self, **settings: str) -> None:
        self.pools = Pools()
        self._settings = settings
        self.route()
        self._ahead = 0.0
        self._loop = asyncio.get_running_loop()

    def _clock(self) -> float:
        return self._loop.time() + self._ahead

    def route(self, *members: str, attributes: Mapping[str, Mapping[str, str]] | None = None) -> None:
        """Has these members from now on, or all four."""
        replace(self.pools.mirror, {PATH: record(*(members or (A, B, C, D)), **self._settings)}, attributes)

    def visit(self, **more: tuple[str, ...]) -> Visit:
        return self.pools.visit(PATH, **more)

    def found(self, visit: Visit, scores: Mapping[str, int] | None) -> Decision:
        """What is reported once Redis has answered these scores of the decision on `visit`."""
        lane = self.pools.ledger.lanes[PATH]
        lane.explained.seen[PATH] = Seen(visit.entry, scores, self._loop.time())
        return self.decision(ahead=0.25)

    def decision(self, ahead: float = 0.0) -> Decision:
        self._ahead = ahead
        found = Explainer(self.pools.gates, self.pools.mirror, self._clock).explain(PATH)
        assert found is not None
        return found

    def grant(self, member: str) -> None:
        self.pools.ledger.lanes[PATH].grant(member)


def why(decision: Decision) -> dict[str, tuple[int | None, int, str]]:
    """Member -> score, capacity, verdict."""
    return {each["member"]: (each["score"], each["capacity"], each["verdict"]) for each in decision["members"]}


async def test_of_the_least_busy_one_is_chosen() -> None:
    explained = Explained(**LEAST)
    visit = explained.visit()
    explained.grant(B)
    decision = explained.found(visit, {A: 1, B: 1, C: 3, D: 4})
    assert why(decision) == {
        A: (1, 4, "tie"),
        B: (1, 4, "chosen"),
        C: (3, 4, "higher score"),
        D: (4, 4, "full"),
    }
    assert (decision["decided_by"], decision["outcome"], decision["chosen"]) == ("redis", "granted", B)
    assert (decision["policy"], decision["reason"], decision["waited"]) == ("least_inflight", None, 0.0)
    assert decision["seconds_ago"] == pytest.approx(0.25, abs=0.2)
    assert (decision["priority"], decision["position"]) == (None, None)


async def test_scores_are_compared_by_slot() -> None:
    explained = Explained(**LEAST)
    explained.route(attributes={A: {"slots": "2"}, B: {"slots": "2"}, C: {"slots": "1"}})
    visit = explained.visit()
    explained.grant(C)
    assert why(explained.found(visit, {A: 6, B: 4, C: 2, D: 1})) == {
        A: (6, 8, "higher score"),
        B: (4, 8, "tie"),
        C: (2, 4, "chosen"),
        D: (1, 4, "passed over"),
    }


async def test_of_an_order_the_first_with_room_is_chosen_and_those_that_fade_in_come_last() -> None:
    explained = Explained(**ORDERED)
    visit = explained.visit(avoided=(A,), deprioritized=(D,))
    explained.grant(B)
    expected = {A: (0, 4, "tried"), B: (0, 4, "chosen"), C: (0, 4, "not first in order"), D: (0, 4, "fading")}
    assert why(explained.found(visit, {})) == expected
    assert why(explained.found(visit, {D: 4})) == {**expected, D: (4, 4, "full")}


async def test_where_nothing_was_recorded_only_the_chosen_and_the_tried_are_known() -> None:
    explained = Explained(**LEAST)
    visit = explained.visit(avoided=(A,))
    explained.grant(B)
    unknown = (None, 4, "not recorded")
    assert why(explained.found(visit, None)) == {
        A: (None, 4, "tried"),
        B: (None, 4, "chosen"),
        C: unknown,
        D: unknown,
    }


async def test_members_that_were_no_candidates_are_reported_with_the_reason_as_far_as_it_is_seen() -> None:
    explained = Explained(**LEAST)
    explained.route(A, B)
    visit = explained.visit()
    explained.grant(A)
    explained.route(A, B, C, D, attributes={D: {"drain": "true"}})
    assert why(explained.found(visit, {})) == {
        A: (0, 4, "chosen"),
        B: (0, 4, "tie"),
        C: (None, 0, "not a candidate"),
        D: (None, 0, "draining"),
    }


async def test_a_request_that_waits_is_reported_with_its_place_and_one_that_has_left_too() -> None:
    explained = Explained(**LEAST)
    visit = explained.visit()
    explained.pools.ledger.lanes[PATH].asked[0].queued(3, 1)
    decision = explained.found(visit, dict.fromkeys((A, B, C), 4))
    assert (decision["outcome"], decision["chosen"], decision["position"], decision["priority"]) == (
        "waiting",
        None,
        3,
        "",
    )
    assert decision["waited"] == pytest.approx(0.25, abs=0.2)
    assert [verdict for _, _, verdict in why(decision).values()] == ["full", "full", "full", "passed over"]
    visit.entry.leave()
    assert explained.decision()["outcome"] == "left"


async def test_a_refusal_is_reported_with_its_reason() -> None:
    explained = Explained(**LEAST)
    visit = explained.visit()
    explained.pools.ledger.lanes[PATH].asked[0].refused("queue_full")
    decision = explained.found(visit, {})
    assert (decision["outcome"], decision["reason"]) == ("refused", "queue_full")


async def test_a_decision_made_here_is_reported_with_this_instance_s_part_of_each_capacity() -> None:
    explained = Explained(**LEAST)
    lane = explained.pools.ledger.lanes[PATH]
    lane.epochs.holders = 2
    lane.turns(ready=False)
    (member,) = explained.visit().answers
    decision = explained.decision()
    assert decision["decided_by"] == "here"
    assert why(decision)[member] == (0, 2, "chosen")


async def test_of_a_route_that_is_not_counted_what_the_next_pick_goes_by_is_reported() -> None:
    explained = Explained(fade_in="60s")
    explained.route(A, B)
    explained.route(A, B, C, attributes={B: {"drain": "true"}})
    explained.pools.mirror.upstreams[A].inflight = 2
    decision = explained.decision()
    assert (decision["decided_by"], decision["outcome"], decision["seconds_ago"]) == ("policy", None, None)
    assert why(decision)[A] == (2, 0, "eligible")
    assert why(decision)[B] == (0, 0, "draining")


async def test_of_what_was_never_decided_nothing_is_reported() -> None:
    pools = Pools()
    explainer = Explainer(pools.gates, pools.mirror, asyncio.get_running_loop().time)
    assert explainer.explain(PATH) is None
    replace(pools.mirror, {PATH: record(A, **LEAST)})
    assert explainer.explain(PATH) is None
