"""Why a request went where it went, as slb reports it afterwards: the decision, Server-Timing, the access log."""

import asyncio
import math
import re
import time
from functools import partial
from typing import Any

import pytest
from pydantic import TypeAdapter

from slb.admission.explain import Explainer, last_seen
from slb.admission.shown import Decision
from slb.balance.upstream import Handle
from slb.control import explained as scores_found
from slb.model import RouteRecord
from slb.observe.families import LATENCY_BOUNDS
from tests.proxy.harness import OK, MakeOrigin, MakeProxy, Proxy, Request, ask
from tests.support.valkey import Valkey
from tests.support.waiting import eventually


class Pod:
    """An origin that answers when the test allows it; `/p/quick` at once, `/p/bad` by leaving."""

    def __init__(self) -> None:
        self.running = 0
        self.go_on = asyncio.Event()

    async def handle(self, request: Request) -> None:
        if request.target == "/p/bad":
            request.wire.reset()
            return
        self.running += 1
        try:
            if request.target != "/p/quick":
                await self.go_on.wait()
        finally:
            self.running -= 1
        await request.wire.send(OK)


def explained(proxy: Proxy) -> Decision | None:
    loop = asyncio.get_running_loop()
    found = Explainer(proxy.gates, proxy.mirror, loop.time).explain("/p")
    if found is not None:
        TypeAdapter(Decision).validate_python(found, strict=True, extra="forbid")
    return found


def outcome(proxy: Proxy) -> str | None:
    found = explained(proxy)
    return found["outcome"] if found is not None else None


def why(proxy: Proxy) -> dict[str, tuple[int | None, str]]:
    """Member -> score, verdict."""
    found = explained(proxy)
    assert found is not None
    return {each["member"]: (each["score"], each["verdict"]) for each in found["members"]}


def has_more_than(proxy: Proxy, lines: int) -> bool:
    return len(proxy.logged()) > lines


_PROBED = {
    "capped": {"policy": "round_robin", "max_inflight": "3"},
    "ring": {"policy": "consistent_hash", "hash_key": "path", "load_signal": "off"},
}


def _has_ring(proxy: Proxy) -> bool:
    ring = proxy.mirror.table.routes["/p"].policy.ring
    return ring is not None and ring.newest is not None


async def _goes_to_the_next(proxy: Proxy, explainer: Explainer) -> str:
    """Ask what is next, then send a request, which has to go there: to which upstream it went."""
    now = explainer.now("/p/quick", b"/p/quick")
    assert now is not None
    (wanted,) = [each["member"] for each in now["members"] if each["verdict"] == "next"]
    served = len(proxy.logged())
    assert (await proxy.get("/p/quick")).status == 200
    await eventually(partial(has_more_than, proxy, served))
    assert proxy.logged()[-1]["upstream"] == wanted
    return wanted


class TestDecisions:
    async def test_a_decision_of_redis_is_reported_with_the_scores_of_the_whole_fleet(
        self, proxies: MakeProxy, origins: MakeOrigin, valkey: Valkey
    ) -> None:
        pods = [Pod(), Pod(), Pod()]
        made = [await origins(pod.handle) for pod in pods]
        one, two = [await proxies(redis=valkey.url, name=name) for name in ("one", "two")]
        for proxy in (one, two):
            proxy.route("/p", *made, policy="least_inflight")
        assert explained(one) is None
        asked = [ask(one), ask(one)]
        await eventually(lambda: sum(pod.running for pod in pods) == 2)
        idle = pods.index(next(pod for pod in pods if not pod.running))
        asked.append(ask(two))
        await eventually(lambda: pods[idle].running == 1)
        decision = explained(two)
        assert decision is not None
        assert (decision["decided_by"], decision["outcome"]) == ("redis", "granted")
        assert decision["chosen"] == made[idle].member
        assert (decision["reason"], decision["position"], decision["waited"]) == (None, None, 0.0)
        assert 0 <= (decision["seconds_ago"] or 0.0) < 10
        assert decision["seconds_ago"] == round(decision["seconds_ago"] or 0.0, 3)
        others = [origin.member for origin in made if origin is not made[idle]]
        expected = dict.fromkeys(others, (1, "higher score"))
        assert why(two) == {made[idle].member: (0, "chosen"), **expected}
        asked.append(ask(two))
        await eventually(lambda: sum(pod.running for pod in pods) == 4)
        assert sorted(verdict for _, verdict in why(two).values()) == ["chosen", "tie", "tie"]
        for pod in pods:
            pod.go_on.set()
        assert [(await each).status for each in asked] == [200] * 4

    async def test_full_upstreams_refusals_and_queueing_are_reported(
        self, proxies: MakeProxy, origins: MakeOrigin, valkey: Valkey
    ) -> None:
        pod = Pod()
        origin = await origins(pod.handle)
        one = await proxies(redis=valkey.url)
        one.route("/p", origin, policy="least_inflight", max_inflight="1")
        running = ask(one)
        await eventually(lambda: pod.running == 1)
        assert (await one.get("/p")).status == 503
        decision = explained(one)
        assert decision is not None
        assert (decision["outcome"], decision["chosen"], decision["reason"]) == ("refused", None, "pool_saturated")
        assert decision["members"] == [
            {"member": origin.member, "score": 1, "capacity": 1, "verdict": "full"},
        ]
        settings = {"policy": "least_inflight", "max_inflight": "1", "when_full": "queue", "priorities": "a=2,b=1"}
        one.route("/p", origin, **settings)
        waiting = [ask(one), ask(one)]
        await eventually(lambda: sum(depth for *_, depth in one.gates.depths()) == 2)
        decision = explained(one)
        assert decision is not None
        assert (decision["outcome"], decision["position"], decision["priority"]) == ("waiting", 1, "b")
        assert why(one) == {origin.member: (1, "full")}
        pod.go_on.set()
        assert [(await each).status for each in (running, *waiting)] == [200] * 3
        decision = explained(one)
        assert decision is not None
        assert (decision["outcome"], decision["chosen"]) == ("granted", origin.member)
        assert decision["position"] == 1

    async def test_a_client_that_left_the_queue_is_reported_as_such(
        self, proxies: MakeProxy, origins: MakeOrigin, valkey: Valkey
    ) -> None:
        pod = Pod()
        origin = await origins(pod.handle)
        one = await proxies(redis=valkey.url)
        one.route("/p", origin, max_inflight="1", when_full="queue")
        running = ask(one)
        await eventually(lambda: pod.running == 1)
        wire = await one.connect()
        await wire.send(b"GET /p HTTP/1.1\r\nHost: h\r\n\r\n")
        await eventually(lambda: any(depth for *_, depth in one.gates.depths()))
        wire.reset()
        await eventually(lambda: outcome(one) == "left")
        pod.go_on.set()
        assert (await running).status == 200
        queued = [line for line in one.logged() if line["status"] == 499]
        assert [line["position"] for line in queued] == [0]
        assert queued[0]["queued"] >= 0

    async def test_each_that_could_not_be_taken_has_its_reason(
        self, proxies: MakeProxy, origins: MakeOrigin, valkey: Valkey
    ) -> None:
        origin = await origins(Pod().handle)
        one = await proxies(redis=valkey.url)
        drains, ejected, gone = "127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"
        members = frozenset({origin.member, drains, ejected, gone})
        settings = {"policy": "least_inflight", "retries": "1", "panic_threshold": "0", "eject_after": "1"}
        one.mirror.update({"/p": RouteRecord(members, settings)}, {drains: {"drain": "1"}})
        live = one.mirror.upstreams[ejected]
        live.available = False
        one.mirror.refresh([ejected])
        for _ in range(2):  # ties rotate: one of two begins with the one that takes no connection
            assert (await one.get("/p/quick")).status == 200
            if why(one)[gone][1] == "tried":
                break
        assert why(one) == {
            origin.member: (0, "chosen"),
            gone: (0, "tried"),
            drains: (None, "draining"),
            ejected: (None, "ejected"),
        }

    async def test_under_a_cap_the_policys_order_is_the_reason(
        self, proxies: MakeProxy, origins: MakeOrigin, valkey: Valkey
    ) -> None:
        made = [await origins(Pod().handle) for _ in range(2)]
        one = await proxies(redis=valkey.url)
        one.route("/p", *made, policy="round_robin", max_inflight="3")
        assert (await one.get("/p/quick")).status == 200
        assert sorted(verdict for _, verdict in why(one).values()) == ["chosen", "not first in order"]
        decision = explained(one)
        assert decision is not None
        assert [each["capacity"] for each in decision["members"]] == [3, 3]

    async def test_without_redis_the_decision_is_reported_as_local(
        self, proxies: MakeProxy, origins: MakeOrigin
    ) -> None:
        pod = Pod()
        origin = await origins(pod.handle)
        one = await proxies()
        one.route("/p", origin, policy="least_inflight", max_inflight="4")
        gate = one.gates.of(one.mirror.table.routes["/p"])
        gate.lane.state.ready = False
        gate.lane.epochs.holders = 4
        running = ask(one)
        await eventually(lambda: pod.running == 1)
        assert (await one.get("/p")).status == 503
        decision = explained(one)
        assert decision is not None
        assert (decision["decided_by"], decision["reason"]) == ("here", "pool_saturated")
        expected = {"member": origin.member, "score": 1, "capacity": 1, "verdict": "full"}
        assert decision["members"] == [expected]
        assert one.gates.shown()["pools"]["/p"]["mode"] == "local"
        pod.go_on.set()
        assert (await running).status == 200

    async def test_for_a_route_that_needs_no_slot_the_policy_is_reported(
        self, proxies: MakeProxy, origins: MakeOrigin
    ) -> None:
        origin = await origins(Pod().handle)
        one = await proxies()
        one.route("/p", origin, "127.0.0.1:1", policy="p2c")
        handle = Handle(one.mirror.upstreams[origin.member])
        decision = explained(one)
        assert decision is not None
        assert (decision["decided_by"], decision["policy"], decision["seconds_ago"]) == ("policy", "p2c", None)
        assert why(one) == {origin.member: (1, "eligible"), "127.0.0.1:1": (0, "eligible")}
        handle.release()

    async def test_what_is_next_is_where_the_next_request_goes(
        self, proxies: MakeProxy, origins: MakeOrigin, valkey: Valkey
    ) -> None:
        made = [await origins(Pod().handle) for _ in range(3)]
        one = await proxies(redis=valkey.url)
        explainer = Explainer(one.gates, one.mirror, asyncio.get_running_loop().time)
        for settings in (
            {"policy": "round_robin"},
            {"policy": "least_local"},
            {"policy": "weighted_round_robin"},
            {"policy": "round_robin", "max_inflight": "3"},
        ):
            one.route("/p", *made, **settings)
            assert (await one.get("/p/quick")).status == 200
            for _ in range(4):
                await _goes_to_the_next(one, explainer)

    @pytest.mark.parametrize("settings", ["round_robin", "least_local", "weighted_round_robin", "capped", "ring"])
    async def test_what_is_next_is_so_while_one_is_on_probation(
        self, settings: str, proxies: MakeProxy, origins: MakeOrigin, valkey: Valkey
    ) -> None:
        made = [await origins(Pod().handle) for _ in range(3)]
        one = await proxies(redis=valkey.url)
        explainer = Explainer(one.gates, one.mirror, asyncio.get_running_loop().time)
        one.route("/p", *made, **_PROBED.get(settings, {"policy": settings}))
        await eventually(lambda: settings != "ring" or _has_ring(one))
        assert (await one.get("/p/quick")).status == 200
        for returning in made:
            live = one.mirror.upstreams[returning.member]
            live.on_probation = True
            one.mirror.refresh([live.member])
            for _ in range(4):  # it owes its first answer
                await _goes_to_the_next(one, explainer)
            handle = Handle(live)
            for _ in range(4):  # the request that is to prove it is under way
                assert await _goes_to_the_next(one, explainer) != returning.member
            handle.release()
            live.on_probation = False
            one.mirror.refresh([live.member])

    async def test_what_is_known_of_a_route_goes_with_it(
        self, proxies: MakeProxy, origins: MakeOrigin, valkey: Valkey
    ) -> None:
        origin = await origins(Pod().handle)
        one = await proxies(redis=valkey.url)
        one.route("/p", origin, policy="least_inflight")
        assert (await one.get("/p/quick")).status == 200
        gate = one.gates.known("/p")
        assert gate is not None
        assert last_seen(gate, "/p") is not None
        gate.keep_views(())
        assert last_seen(gate, "/p") is None


async def test_an_upstream_of_two_pools_has_one_series_with_what_both_count(proxies: MakeProxy) -> None:
    one = await proxies()
    for path in ("/p", "/q"):
        one.route(path, policy="least_inflight")
        gate = one.gates.of(one.mirror.table.routes[path])
    one.ledger.scores = {"/p": {"a:80": 1, "b:80": 1}, "/q": {"a:80": 2}}
    assert list(one.metrics.ledger.global_inflight()) == [("a:80", 3), ("b:80", 1)]
    gate.lane.state.ready = False  # what was read of it a while ago is out of date now
    assert list(one.metrics.ledger.global_inflight()) == [("a:80", 1), ("b:80", 1)]


async def test_an_upstream_of_an_idle_pool_counts_as_0_while_redis_answers(proxies: MakeProxy) -> None:
    one = await proxies()
    for path, idle in (("/p", "10.0.0.1:1"), ("/q", "10.0.0.2:1")):
        one.route(path, idle, "10.0.0.3:1", policy="least_inflight")
        route = one.mirror.table.routes[path]
        gate = one.gates.of(route)
        gate.candidates.of(route)
    assert dict(one.metrics.ledger.global_inflight()) == {}, "unknown before they have been read"
    one.ledger.scores = {"/p": {}, "/q": {"10.0.0.3:1": 2}}
    assert dict(one.metrics.ledger.global_inflight()) == {"10.0.0.1:1": 0, "10.0.0.2:1": 0, "10.0.0.3:1": 2}
    gate.lane.state.ready = False
    assert dict(one.metrics.ledger.global_inflight()) == {"10.0.0.1:1": 0, "10.0.0.3:1": 0}


async def test_counts_of_the_fleet_are_not_shown_while_redis_does_not_answer(proxies: MakeProxy) -> None:
    one = await proxies()
    one.route("/p", policy="least_inflight")
    lane = one.gates.of(one.mirror.table.routes["/p"]).lane
    assert one.gates.shown()["pools"]["/p"]["scores"] is None, "it has not been read"
    one.ledger.scores = {"/p": {"a:80": 1}}
    lane.state.queued, lane.epochs.holders = 3, 2
    shown = one.gates.shown()["pools"]["/p"]
    assert (shown["holders"], shown["queued"], shown["scores"]) == (2, 3, {"a:80": 1})
    lane.state.ready = False
    shown = one.gates.shown()["pools"]["/p"]
    assert (shown["holders"], shown["queued"], shown["scores"]) == (None, None, None)


class TestQueueing:
    async def test_time_and_place_in_the_queue_are_in_server_timing_and_in_the_log(
        self, proxies: MakeProxy, origins: MakeOrigin, valkey: Valkey
    ) -> None:
        pod = Pod()
        origin = await origins(pod.handle)
        one = await proxies(redis=valkey.url, client_detail="full")
        one.route("/p", origin, policy="least_inflight", max_inflight="1", when_full="queue")
        asked = []
        for number in range(3):
            asked.append(ask(one, X_Slb_Timing="1"))
            await eventually(lambda wanted=number: _known(one) == wanted + 1)  # type: ignore[misc]
        pod.go_on.set()
        timings = [(await each).one("Server-Timing") or "" for each in asked]
        own = r'upstream;dur=\d+\.\d{3}, attempts;desc="1"'
        assert re.fullmatch(own, timings[0])
        assert re.fullmatch(r'queue;dur=\d+\.\d{3};desc="0", ' + own, timings[1])
        assert re.fullmatch(r'queue;dur=\d+\.\d{3};desc="1", ' + own, timings[2])
        lines: list[dict[str, Any]] = sorted(one.logged(), key=lambda line: line.get("position", -1))
        assert [line.get("position") for line in lines] == [None, 0, 1]
        assert "queued" not in lines[0]
        assert all(line["queued"] >= 0 for line in lines[1:])


def _known(proxy: Proxy) -> int:
    """Requests that have a slot or a place in the queue."""
    return proxy.inflight() + sum(depth for *_, depth in proxy.gates.depths())


class TestWhatWasFound:
    """`find` of the decisions, which outlives the state that it tells of."""

    async def test_a_request_is_told_with_what_it_found_and_not_with_what_is_there_now(
        self, proxies: MakeProxy, origins: MakeOrigin
    ) -> None:
        origin, other = [await origins(Pod().handle) for _ in range(2)]
        one = await proxies()
        settings = {"policy": "least_local", "panic_threshold": "0"}
        ejected = "127.0.0.1:1"
        members = frozenset({origin.member, other.member, ejected})
        one.mirror.update({"/p": RouteRecord(members, settings)}, {other.member: {"drain": "1"}})
        out = one.mirror.upstreams[ejected]
        out.available, out.why = False, "5 failures in a row"
        one.mirror.refresh([ejected])
        busy = Handle(one.mirror.upstreams[origin.member])
        assert (await one.get("/p/quick", X_Request_Id="then")).status == 200
        busy.release()
        one.mirror.update({"/p": RouteRecord(frozenset({other.member}), {})}, {other.member: {}})
        found = _found(one, "then")
        assert (found["policy"], found["by"]) == (
            "least_local",
            "requests in flight here per slot, the least first",
        )
        assert -1.0 < found["found_after"] <= 0.0
        assert _verdicts(found) == {
            origin.member: ("chosen", 1, 1),
            other.member: ("draining", None, 0),
            ejected: ("ejected", None, 0),
        }
        assert [each["why"] for each in found["members"] if each["member"] == ejected] == ["5 failures in a row"]

    async def test_slots_in_the_fleet_are_told_as_redis_found_them_for_the_request(
        self, proxies: MakeProxy, origins: MakeOrigin, valkey: Valkey, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Or for another request a moment before."""
        pods = [Pod(), Pod()]
        made = [await origins(pod.handle) for pod in pods]
        other, one = [await proxies(redis=valkey.url, name=name) for name in ("other", "one")]
        for proxy in (other, one):
            proxy.route("/p", *made, policy="least_inflight", max_inflight="1", when_full="queue")
        asked = [ask(other)]
        await eventually(lambda: sum(pod.running for pod in pods) == 1)
        first, second = (made[index].member for index in sorted((0, 1), key=lambda each: -pods[each].running))
        one.ledger.scores = {}
        asked.append(ask(one, X_Request_Id="granted"))
        await eventually(lambda: sum(pod.running for pod in pods) == 2)
        monkeypatch.setattr(scores_found, "_EVERY", 1e9)
        monkeypatch.setattr(scores_found, "_BURST", 0)
        asked.append(ask(one, X_Request_Id="queued"))
        await eventually(lambda: _known(one) == 2)
        for pod in pods:
            pod.go_on.set()
        assert [(await each).status for each in asked] == [200] * 3
        await one.at_rest()
        granted, queued = _found(one, "granted"), _found(one, "queued")
        assert {each["member"]: (each["verdict"], each["score"], each["fleet"]) for each in granted["members"]} == {
            first: ("full", 1.0, 1),
            second: ("chosen", 0.0, 0),
        }
        assert {each["member"]: each["fleet"] for each in queued["members"]} == {first: 1, second: 0}
        assert granted["scores_after"] > 0 > queued["scores_after"]

    async def test_of_a_request_that_failed_somewhere_its_last_attempt_is_told(
        self, proxies: MakeProxy, origins: MakeOrigin
    ) -> None:
        origin, gone = await origins(Pod().handle), "127.0.0.1:1"
        one = await proxies()
        one.route("/p", origin, gone, policy="round_robin")
        for number in range(2):
            assert (await one.get("/p/quick", X_Request_Id=f"n{number}")).status == 200
        retried = next(found for found in (_found(one, "n0"), _found(one, "n1")) if found["failed"])
        verdicts = {member: verdict for member, (verdict, *_) in _verdicts(retried).items()}
        assert verdicts == {origin.member: "chosen", gone: "tried"}

    async def test_of_a_refusal_it_is_told_why_none_was_left(self, proxies: MakeProxy) -> None:
        one = await proxies()
        one.route("/p", "127.0.0.1:1", panic_threshold="0")
        out = one.mirror.upstreams["127.0.0.1:1"]
        out.available = False
        one.mirror.refresh([out.member])
        assert (await one.get("/p", X_Request_Id="then")).reason == "no_upstream"
        out.available = True
        one.mirror.refresh([out.member])
        assert _verdicts(_found(one, "then")) == {"127.0.0.1:1": ("ejected", None, 0)}

    async def test_figures_are_read_for_one_request_in_a_while_and_who_is_left_out_for_each(
        self, proxies: MakeProxy, origins: MakeOrigin
    ) -> None:
        origin = await origins(Pod().handle)
        one = await proxies()
        one.route("/p", origin, "127.0.0.1:1", policy="least_local", panic_threshold="0")
        out = one.mirror.upstreams["127.0.0.1:1"]
        out.available = False
        one.mirror.refresh([out.member])
        assert (await one.get("/p/quick", X_Request_Id="first")).status == 200
        view = one.mirror.table.routes["/p"].view
        view.snapshot_until = math.inf  # as if no time passed
        first, busy = view.snapshot, Handle(one.mirror.upstreams[origin.member])
        assert (await one.get("/p/quick", X_Request_Id="second")).status == 200
        assert view.snapshot is first
        assert _verdicts(_found(one, "second"))[origin.member] == ("chosen", 0, 0)
        busy.release()
        out.available = True
        one.mirror.refresh([out.member])
        view = one.mirror.table.routes["/p"].view
        for number in range(2):
            assert (await one.get("/p/quick", X_Request_Id=f"n{number}")).status == 200
            assert _verdicts(_found(one, f"n{number}"))["127.0.0.1:1"][0] != "ejected"

    async def test_failures_and_the_slowest_outlive_a_flood_of_others(
        self, proxies: MakeProxy, origins: MakeOrigin
    ) -> None:
        pod = Pod()
        origin = await origins(pod.handle)
        one = await proxies()
        one.route("/p", origin)
        assert (await one.get("/p/quick", X_Request_Id="quick")).status == 200
        await one.at_rest()
        for _ in range(1000):
            one.metrics.traffic.routes["/p"].durations.observe(0.0)
        one.mirror.refresh([origin.member])  # a new view has a new snapshot
        slow = ask(one, X_Request_Id="slow")
        await eventually(lambda: pod.running == 1)
        began = time.monotonic()
        await eventually(lambda: time.monotonic() - began > LATENCY_BOUNDS[0])
        pod.go_on.set()
        assert (await slow).status == 200
        await one.at_rest()
        assert _found(one, "quick")["status"] == 200
        one.metrics.decisions.plain.clear()
        assert _found(one, "slow")["status"] == 200
        assert one.metrics.decisions.find("quick") == []


def _found(proxy: Proxy, request_id: str) -> dict[str, Any]:
    (found,) = proxy.metrics.decisions.find(request_id)
    return found


def _verdicts(found: dict[str, Any]) -> dict[str, tuple[str, float | None, int]]:
    """Member -> verdict, score, in flight here."""
    return {each["member"]: (each["verdict"], each["score"], each["inflight"]) for each in found["members"]}
