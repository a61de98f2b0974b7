"""consistent_hash through the session: the ring of the proxy, and what it does with trouble."""

import asyncio
import json
import os
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import web
from prometheus_client import CollectorRegistry, generate_latest

from slb.balance.ring import Ring
from slb.balance.upstream import LiveUpstream
from slb.client import OutboundCollector, Session
from slb.model import Upstream as Spec
from tests.client.conftest import Upstreams
from tests.client.rig import Gate, Upstream, answering, asked, at_rest, live
from tests.process.commands import Commands
from tests.support.valkey import Valkey
from tests.support.waiting import eventually

VECTORS = Path(__file__).parents[1] / "vectors" / "skipper_ring.json"
RING = {"policy": "consistent_hash", "fade_in": "0", "ring_debounce": "0", "connect_timeout": "30s"}
"""The usual timeout of a connect is short for a busy machine."""
PLAIN = {**RING, "load_signal": "off"}
SAMPLE = 60
"""Keys of each case: every one is a call on a socket. All are held to the ring itself elsewhere."""


def _owner(members: list[str], key: str) -> str:
    ring = Ring.of(LiveUpstream(Spec.of(member)) for member in members)
    return ring.pick(key.encode()).member


def _cases() -> list[Any]:
    found: list[Any] = json.loads(VECTORS.read_text())
    return found


@pytest.mark.parametrize("case", _cases(), ids=lambda case: f"{len(case['endpoints'])}-{case['balance_factor']}")
@pytest.mark.parametrize("load_signal", ["off", "inflight"])
async def test_a_session_picks_as_skipper_does(
    upstreams: Upstreams, case: dict[str, Any], load_signal: str
) -> None:
    """By a forward proxy that sees which upstream each call was for."""

    async def whose(request: web.BaseRequest) -> web.StreamResponse:
        return web.Response(text=request.headers["Host"])

    proxy = await upstreams(whose)
    members = [each.removeprefix("http://") for each in case["endpoints"]]
    settings = {**RING, "load_signal": load_signal, "balance_factor": case["balance_factor"], "panic_threshold": 0}
    async with Session(upstreams=members, settings=settings, proxy=proxy.url) as session:
        by_member = {each.member: each for each in live(session)}
        for member, inflight in zip(members, case["inflight"], strict=True):
            by_member[member].inflight = inflight
        for index in case["skip"]:
            by_member[members[index]].available = False
        session.table.routes["/"].refresh()
        picked = []
        for number in range(SAMPLE):
            async with session.get("/x", key=case["key_format"] % number) as response:
                picked.append(members.index(await response.text()))
    assert picked == case["search" if load_signal == "off" else "bounded"][:SAMPLE]


async def test_the_key_is_the_path_where_none_is_given(upstreams: Upstreams) -> None:
    three = [await upstreams() for _ in range(3)]
    members = [each.member for each in three]
    paths = [f"/products/{number}" for number in range(30)]
    async with Session(upstreams=members, settings=PLAIN) as session:
        await asked(session, [f"{path}?q={n}" for path in paths for n in range(2)])
    for each in three:
        assert {_owner(members, seen.partition("?")[0]) for seen in each.seen} <= {each.member}


@pytest.mark.parametrize(
    ("hash_key", "options"),
    [
        ("header:X-Key", {"headers": {"x-key": "k7"}}),
        ("header:X-Tenant", {}),
        ("cookie:k", {"cookies": {"k": "k7"}}),
        ("query:k", {"params": {"k": "k7"}}),
    ],
)
async def test_the_key_is_found_where_hash_key_names_it(
    upstreams: Upstreams, hash_key: str, options: dict[str, Any]
) -> None:
    three = [await upstreams() for _ in range(3)]
    members = [each.member for each in three]
    settings = {**PLAIN, "hash_key": hash_key}
    async with Session(upstreams=members, settings=settings, headers={"X-Tenant": "k7"}) as session:
        for number in range(9):
            async with session.get(f"/{number}", **options) as response:
                assert response.status == 200
    assert [len(each.seen) for each in three] == [9 * (m == _owner(members, "k7")) for m in members]


async def test_only_whole_answers_that_are_no_5xx_count_for_latency(upstreams: Upstreams) -> None:
    upstream = await upstreams(answering(500))
    async with Session(upstreams=[upstream.member], settings=RING) as session:
        load_stats = live(session)[0].load_stats
        assert load_stats is not None
        await asked(session, ["/x"] * 3)
        await at_rest(session)
        assert load_stats.latency is None
        upstream.handle = answering(404)
        await asked(session, ["/x"])
        assert load_stats.latency is not None


@pytest.mark.parametrize(
    ("kind", "stuck"),
    [("text/event-stream", False), ("Text/Event-Stream; charset=utf-8", False), ("application/x-ndjson", True)],
)
async def test_events_that_never_end_are_no_sign_of_being_stuck(
    upstreams: Upstreams, kind: str, stuck: bool
) -> None:
    gate = Gate()

    async def stream(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": kind})
        await response.prepare(request)
        await gate.open.wait()
        return response

    upstream = await upstreams(stream)
    async with Session(upstreams=[upstream.member], settings=RING) as session:
        load_stats = live(session)[0].load_stats
        assert load_stats is not None
        async with session.get("/x"):
            assert load_stats.inflight == 1
            assert load_stats.is_stuck(0.0, time.monotonic() + 60.0) is stuck
        gate.open.set()
        await at_rest(session)


async def test_what_the_rings_do_stands_among_the_metrics_of_the_session(upstreams: Upstreams) -> None:
    three = [await upstreams() for _ in range(3)]
    settings = {**RING, "hash_key": "header:X-Key"}
    async with Session(upstreams=[each.member for each in three], settings=settings) as session:
        registry = CollectorRegistry()
        registry.register(OutboundCollector(session.metrics))
        await asked(session, ["/x"] * 2)
        await asked(session, ["/x"], key="k")
        lines = generate_latest(registry).decode().splitlines()
    for line in (
        'slb_outbound_requests_total{code="200",way="ring"} 3.0',
        'slb_ring_distance_count{route="/"} 1.0',
        'slb_ring_keyless_total{route="/"} 2.0',
        'slb_ring_unready_total{route="/"} 0.0',
        'slb_ring_fading{route="/"} 0.0',
        'slb_zone_share{route="/"} 0.0',
        'slb_zone_health{route="/"} 1.0',
    ):
        assert line in lines
    for name in ("slb_upstream_occupancy", "slb_upstream_effective_load"):
        assert {f'{name}{{route="/",upstream="{each.member}"}}' for each in three} == {
            line.split(" ")[0] for line in lines if line.startswith(name)
        }


async def test_calls_without_a_key_are_shared_evenly(upstreams: Upstreams) -> None:
    three = [await upstreams() for _ in range(3)]
    settings = {**RING, "hash_key": "header:X-Key"}
    async with Session(upstreams=[each.member for each in three], settings=settings) as session:
        await asked(session, ["/x"] * 9)
    assert [len(each.seen) for each in three] == [3, 3, 3]


async def test_keys_stay_where_they_are_warm_when_an_upstream_joins(valkey: Valkey, upstreams: Upstreams) -> None:
    four = [await upstreams() for _ in range(4)]
    admin = valkey.admin
    for name, value in PLAIN.items():
        admin.hset("slb:route:/", name, value)
    admin.sadd("slb_", *(each.member for each in four[:3]))
    paths = [f"/products/{number}" for number in range(60)]
    members = [each.member for each in four]
    async with Session(redis_url=valkey.url) as session:
        await asked(session, paths)
        before = [list(each.seen) for each in four]
        admin.sadd("slb_", four[3].member)
        newcomers = [path for path in paths if _owner(members, path) == four[3].member]
        ring = session.table.routes["/"].policy.ring
        assert ring is not None
        await eventually(lambda: len([each for each, _, _ in ring.loads()]) == 4, what="a ring of four")
        await asked(session, paths)
    for each, seen in zip(four[:3], before, strict=False):
        assert set(each.seen[len(seen) :]) == set(seen) - set(newcomers)
    assert four[3].seen == newcomers


async def test_a_retry_goes_to_the_next_on_the_ring(upstreams: Upstreams) -> None:
    async def ill(_: web.BaseRequest) -> web.StreamResponse:
        return web.Response(status=503)

    three = [await upstreams() for _ in range(3)]
    members = [each.member for each in three]
    owner = _owner(members, "k")
    bad = next(each for each in three if each.member == owner)
    bad.handle = ill
    heir = _owner([member for member in members if member != owner], "k")
    async with Session(upstreams=members, settings=PLAIN) as session:
        assert await asked(session, ["/x"] * 3, key="k") == {200: 3}
    assert {each.member: len(each.seen) for each in three if each.seen} == {owner: 3, heir: 3}


async def test_a_retry_without_a_key_does_not_bring_the_next_call_to_the_same_ill_upstream_again(
    upstreams: Upstreams,
) -> None:
    ill, well = await upstreams(answering(500)), await upstreams()
    async with Session(upstreams=[ill.member, well.member], settings={**PLAIN, "hash_key": "ip"}) as session:
        assert await asked(session, ["/x"] * 6) == {200: 6}
    assert (len(ill.seen), len(well.seen)) == (3, 6)


async def test_a_hot_key_is_shared_where_its_upstream_is_busy(upstreams: Upstreams) -> None:
    gate = Gate()
    three = [await upstreams(gate) for _ in range(3)]
    settings = {**RING, "load_signal": "inflight"}
    async with Session(upstreams=[each.member for each in three], settings=settings) as session:
        tasks = [asyncio.create_task(session.get("/x", key="hot")) for _ in range(30)]
        await eventually(lambda: sum(each.inside for each in three) == 30)
        assert max(each.inside for each in three) <= 13
        gate.open.set()
        await asyncio.gather(*tasks)
        await at_rest(session)


@pytest_asyncio.fixture
async def commands(tmp_path: Path) -> AsyncIterator[Commands]:
    made = Commands(tmp_path)
    yield made
    await made.close()


async def test_an_upstream_that_freezes_is_walked_around_until_it_thaws(
    commands: Commands, upstreams: Upstreams
) -> None:
    """Its own keys go to their next upstream while it is stuck, without an error, and come back."""
    process, frozen = await commands.upstream("frozen", "--listen", "127.0.0.1:0", "--slots", "100")
    others: list[Upstream] = [await upstreams() for _ in range(2)]
    members = [frozen, *(each.member for each in others)]
    keys = [key for key in (f"k{number}" for number in range(200)) if _owner(members, key) == frozen]
    settings = {**RING, "first_byte_timeout": "10s"}
    async with Session(upstreams=members, settings=settings) as session:
        for key in keys[:20]:
            await asked(session, ["/warm"], key=key)
        assert sum(len(each.seen) for each in others) < 5
        os.kill(process.pid, signal.SIGSTOP)
        stuck = [asyncio.create_task(session.get("/stuck", key=key)) for key in keys[:3]]
        try:
            await eventually(lambda: _walked(session, frozen), what="seen to be stuck")
            around = [asyncio.create_task(session.get("/around", key=keys[0])) for _ in range(20)]
            await eventually(
                lambda: sum(each.seen.count("/around") for each in others) >= 19, what="but for a probe"
            )
        finally:
            os.kill(process.pid, signal.SIGCONT)
        assert [each.status for each in await asyncio.gather(*stuck, *around)] == [200] * 23
        await at_rest(session)


def _walked(session: Session, member: str) -> bool:
    """Whether it counts as stuck."""
    ring = session.table.routes["/"].policy.ring
    assert ring is not None
    return any(upstream.member == member and load >= 5 for upstream, _, load in ring.loads())


async def test_a_call_that_was_sent_again_for_a_5xx_is_no_latency_of_the_first_upstream(
    upstreams: Upstreams,
) -> None:
    bad, good = await upstreams(answering(500)), await upstreams()
    async with Session(upstreams=[bad.member, good.member], settings=RING) as session:
        await asked(session, [f"/{number}" for number in range(20)])
        assert bad.seen
        latencies = {each.member: each.load_stats.latency for each in live(session) if each.load_stats}
        assert latencies[bad.member] is None
        assert latencies[good.member] is not None


async def test_calls_stay_in_the_zone_of_their_session(upstreams: Upstreams) -> None:
    zones = {zone: [await upstreams() for _ in range(3)] for zone in "ab"}
    members = {each.member: {"zone": zone} for zone, pods in zones.items() for each in pods}
    settings = {**PLAIN, "zone_affinity": True, "zone_delay": "0", "zone_fade_in": "1ms", "zone_ceiling": 1}
    async with Session(upstreams=members, zone="a", settings=settings) as session:
        await asked(session, ["/first"])  # the ramp begins
        await asyncio.sleep(0.05)
        for pods in zones.values():
            for each in pods:
                each.seen.clear()
        await asked(session, [f"/{number}" for number in range(200)])
        assert sum(len(each.seen) for each in zones["a"]) > 180
