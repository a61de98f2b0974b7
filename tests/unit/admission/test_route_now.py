"""What a request would find now: of each upstream of its route what is compared, or why it takes none."""

import asyncio
from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter

from slb.admission.explain import Explainer
from slb.admission.shown import CandidateNow, RouteNow
from slb.model import HealthCheck
from tests.unit.admission.gate_rig import Pools
from tests.unit.routing.mirror_rig import A, B, C, D, record, replace

PATH = "/p"
LEAST = {"policy": "least_inflight", "max_inflight": "4"}


class Now:
    """One route with four members."""

    def __init__(self, attributes: Mapping[str, Mapping[str, str]] | None = None, /, **settings: str) -> None:
        self.pools = Pools()
        replace(self.pools.mirror, {PATH: record(A, B, C, D, **settings)}, attributes)
        self._clock = asyncio.get_running_loop().time

    def has(self, member: str, **figures: Any) -> None:
        """What is known of an upstream from now on."""
        live = self.pools.mirror.upstreams[member]
        for name, value in figures.items():
            setattr(live, name, value)
        self.pools.mirror.refresh([member])

    def scores(self, **scores: int) -> None:
        """What the ledger has of upstreams, by their letter."""
        self.pools.ledger.scores[PATH] = {{"a": A, "b": B, "c": C, "d": D}[each]: n for each, n in scores.items()}

    def found(self, path: str = f"{PATH}/x", key: bytes = b"") -> RouteNow:
        found = Explainer(self.pools.gates, self.pools.mirror, self._clock).now(path, key)
        assert found is not None
        return TypeAdapter(RouteNow).validate_python(found, strict=True, extra="forbid")

    def of(self, member: str) -> CandidateNow:
        (found,) = [each for each in self.found()["members"] if each["member"] == member]
        return found

    def verdicts(self) -> dict[str, str]:
        return {each["member"]: each["verdict"] for each in self.found()["members"]}


async def test_the_least_in_flight_of_the_fleet_is_next_and_the_full_are_named() -> None:
    now = Now({B: {"slots": "2"}}, **LEAST)
    now.scores(a=4, b=3, c=2, d=3)
    found = now.found()
    assert (found["route"], found["decided_by"], found["outcome"], found["reason"]) == (PATH, "redis", "sent", "")
    assert found["by"] == "requests in flight everywhere, a second ago, per slot, the least first"
    shown = {each["member"]: (each["verdict"], each["score"], each["capacity"]) for each in found["members"]}
    assert shown == {A: ("full", 4, 4), B: ("next", 1.5, 8), C: ("eligible", 2, 4), D: ("eligible", 3, 4)}
    now.scores(a=2, b=8, c=2, d=4)
    assert now.verdicts() == {A: "eligible", B: "full", C: "eligible", D: "full"}, "equals take turns"


async def test_where_all_are_full_it_waits_or_is_refused() -> None:
    for when_full, outcome in (("queue", ("waits", "")), ("shed", ("refused", "pool_saturated"))):
        now = Now(**LEAST, when_full=when_full)
        now.scores(a=4, b=4, c=4, d=4)
        found = now.found()
        assert (found["outcome"], found["reason"]) == outcome


async def test_each_that_takes_no_requests_has_its_reason() -> None:
    check = HealthCheck("/live", 5.0, 2, 3, 2.0)
    now = Now({A: {"drain": "1"}}, policy="round_robin", health_path="/live", panic_threshold="0")
    now.has(B, available=False, why="5 failures in a row; out for 10 s", failures=5)
    now.has(C, down=frozenset({check}), why="3 checks failed in a row")
    found = {each["member"]: (each["verdict"], each["why"]) for each in now.found()["members"]}
    assert found[A] == ("draining", "")
    assert found[B] == ("ejected", "5 failures in a row; out for 10 s; 5 failed in a row")
    assert found[C] == ("down", "3 checks failed in a row; by the check of /live")
    assert found[D][0] == "eligible"  # where the turns begin is drawn
    now.has(D, failures=1, on_probation=True)
    alone = "one request at a time until an answer proves it, and second attempts go elsewhere"
    assert now.of(D)["why"] == f"its last request failed; on probation: {alone}"


async def test_in_a_panic_those_that_are_out_are_used_and_that_is_said() -> None:
    now = Now(policy="least_local")
    for member in (A, B, C):
        now.has(member, available=False, inflight=1)
    found = now.found()
    assert found["panic"] is True
    assert (now.of(A)["verdict"], now.of(A)["why"]) == ("eligible", "ejected, and used in the panic")
    assert now.of(D)["verdict"] == "next"


async def test_without_any_that_takes_requests_it_is_refused() -> None:
    now = Now({each: {"drain": "1"} for each in (A, B, C, D)})
    found = now.found()
    assert (found["outcome"], found["reason"], found["by"]) == ("refused", "no_upstream", "")


async def test_one_that_fades_in_has_its_share() -> None:
    now = Now(policy="least_local", fade_in="100s")
    now.has(A, seen=asyncio.get_running_loop().time() - 25)
    shown = now.of(A)
    assert shown["verdict"] == "fading"
    assert 0.25 <= shown["share"] < 0.9
    assert now.of(B)["share"] == 1


async def test_one_on_probation_has_its_share_and_one_that_is_busy_its_reason() -> None:
    now = Now(policy="least_local")
    at = asyncio.get_running_loop().time()
    now.has(A, on_probation=True, proven=True, back_at=at - 50, trusted_at=at + 50)
    now.has(B, on_probation=True, inflight=1)
    now.has(C, set_aside=True)
    assert 0.5 <= now.of(A)["share"] < 0.9
    assert (now.of(B)["verdict"], now.of(B)["share"], now.of(B)["score"]) == ("on probation", 0, None)
    assert now.of(A)["verdict"] == "fading"
    assert now.of(C)["verdict"] == "busy"
    now.has(A, inflight=1)  # while both are idle, it is drawn which is next
    assert (now.of(D)["verdict"], now.of(D)["share"]) == ("next", 1)


async def test_where_all_but_the_one_on_probation_are_full_a_request_does_not_go_there() -> None:
    now = Now(**LEAST)
    now.scores(a=4, b=4, c=4)
    now.has(D, on_probation=True)
    assert (now.of(D)["verdict"], now.found()["outcome"]) == ("next", "sent")
    now.has(D, inflight=1)
    assert (now.of(D)["verdict"], now.found()["outcome"]) == ("on probation", "refused")


async def test_while_redis_is_away_the_counts_of_this_instance_decide() -> None:
    now = Now(**LEAST, when_unsure="refuse")
    now.has(A, inflight=1)
    now.pools.gates.of(now.pools.mirror.table.routes[PATH])
    now.pools.ledger.lanes[PATH].state.ready = False
    found = now.found()
    assert (found["decided_by"], found["outcome"], found["reason"]) == ("here", "refused", "slots_unknown")
    assert [each["fleet"] for each in found["members"]] == [None] * 4
    assert [each["score"] for each in found["members"]] == [1, 0, 0, 0]


async def test_a_path_without_a_route_finds_none() -> None:
    assert Explainer(Now().pools.gates, Pools().mirror, lambda: 0.0).now("/p", b"") is None
