"""What Zalando's Skipper picks, key for key."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from slb.balance.ring import Ring
from slb.balance.upstream import LiveUpstream
from tests.unit.balance.rings import live

VECTORS = Path(__file__).parents[3].parent / "shared" / "vectors" / "skipper_ring.json"

pytestmark = pytest.mark.skipif(not VECTORS.exists(), reason="no vectors beside the repository")


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


def test_a_ring_without_who_may_not_be_picked_gives_the_same() -> None:
    for ring, upstreams, case in cases():
        rest = ring.without(upstreams[index] for index in case["skip"])
        assert [rest.pick(key) for key in keys(case)] == [upstreams[index] for index in case["search"]]
