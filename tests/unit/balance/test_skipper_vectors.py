"""What Zalando's Skipper picks, key for key."""

import json
from collections.abc import Iterator
from operator import attrgetter
from pathlib import Path
from random import Random
from typing import Any

from slb.balance.bounded_load import bounded_as_skipper
from slb.balance.consistent_hash import ConsistentHash
from slb.balance.ring import Ring
from slb.balance.upstream import LiveUpstream
from slb.balance.view import RouteView
from slb.model import RouteSettings
from tests.unit.balance.rings import live

VECTORS = Path(__file__).parents[2] / "vectors" / "skipper_ring.json"


def cases() -> Iterator[tuple[Ring, list[LiveUpstream], dict[str, Any]]]:
    """A ring, its upstreams in the order that the case counts them in, and the case."""
    for case in json.loads(VECTORS.read_text()):
        upstreams = [live(endpoint) for endpoint in case["endpoints"]]
        for upstream, inflight in zip(upstreams, case["inflight"], strict=True):
            upstream.inflight = inflight
        yield Ring.of(upstreams), upstreams, case


def keys(case: dict[str, Any]) -> list[bytes]:
    return [(case["key_format"] % number).encode() for number in range(case["keys"])]


def test_every_key_has_the_owner_that_skipper_gives_it() -> None:
    for ring, upstreams, case in cases():
        out = {upstreams[index] for index in case["skip"]}
        picked = [next(each for each in ring.walk(key) if each not in out) for key in keys(case)]
        assert picked == [upstreams[index] for index in case["search"]]
        if not out:
            assert [ring.pick(key) for key in keys(case)] == picked


def test_a_ring_without_upstreams_that_may_not_be_picked_gives_the_same() -> None:
    for ring, upstreams, case in cases():
        rest = ring.without(upstreams[index] for index in case["skip"])
        assert [rest.pick(key) for key in keys(case)] == [upstreams[index] for index in case["search"]]


def test_under_load_every_key_goes_where_skipper_sends_it() -> None:
    for ring, upstreams, case in cases():
        eligible = frozenset(upstreams) - {upstreams[index] for index in case["skip"]}
        found = [
            bounded_as_skipper(walk(ring, key, eligible), eligible, case["balance_factor"]) for key in keys(case)
        ]
        assert [each.upstream for each in found if each] == [upstreams[index] for index in case["bounded"]]


def test_the_policy_picks_the_same_with_skippers_signal_and_with_none() -> None:
    for _, upstreams, case in cases():
        whole = RouteView(tuple(sorted(upstreams, key=attrgetter("member"))))
        skipped = [upstreams[index] for index in case["skip"]]
        views = ((whole, skipped), (RouteView(whole.left(skipped)), None))
        for signal, picks in (("inflight", "bounded"), ("off", "search")):
            policy = ConsistentHash(Random(1), lambda: 0.0)
            settings = RouteSettings.model_validate(
                {"load_signal": signal, "balance_factor": case["balance_factor"], "ring_debounce": "0s"}
            )
            policy.follow(tuple(upstreams), settings)
            for _ in policy.steps():
                pass
            for view, without in views:
                picked = [policy.pick(view, key, without) for key in keys(case)]
                assert picked == [upstreams[index] for index in case[picks]]


def walk(ring: Ring, key: bytes, eligible: frozenset[LiveUpstream]) -> Iterator[LiveUpstream]:
    return filter(eligible.__contains__, ring.walk(key))
