"""A route by consistent_hash, as its table and its requests have it."""

from collections.abc import Sequence
from random import Random
from typing import Any

from slb.balance.consistent_hash import ConsistentHash
from slb.balance.upstream import LiveUpstream
from slb.model import RouteSettings
from tests.unit.balance.rings import KEYS

Upstreams = tuple[LiveUpstream, ...]


class Route:
    """A policy, told of its upstreams and kept up to date, and a clock that only the test moves."""

    def __init__(self, upstreams: Sequence[LiveUpstream], zone: str = "", **settings: Any) -> None:
        self.now = 1000.0
        self.settings = RouteSettings.model_validate(
            {"policy": "consistent_hash", "ring_debounce": "0s", **settings}
        )
        self.policy = ConsistentHash(Random(5), lambda: self.now, zone)
        self.upstreams: Upstreams = ()
        self.has(upstreams)

    def has(self, upstreams: Sequence[LiveUpstream]) -> None:
        """These are its upstreams from now on."""
        self.upstreams = tuple(sorted(upstreams, key=lambda each: each.member))
        self.policy.follow(self.upstreams, self.settings)
        self.step()

    def step(self) -> None:
        while self.policy.wake <= self.now:
            for _ in self.policy.steps():
                pass

    def after(self, seconds: float) -> None:
        self.now += seconds
        self.step()

    def pick(self, key: bytes, without: Sequence[LiveUpstream] = ()) -> LiveUpstream:
        return self.policy.pick(tuple(each for each in self.upstreams if each not in without), key)

    def picks(self, without: Sequence[LiveUpstream] = ()) -> list[LiveUpstream]:
        """Whom each key goes to, one request at a time."""
        eligible = tuple(each for each in self.upstreams if each not in without)
        return [self.policy.pick(eligible, key) for key in KEYS]
