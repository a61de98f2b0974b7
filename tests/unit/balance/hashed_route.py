"""A route by consistent_hash, as its table and its requests have it."""

from collections.abc import Sequence
from random import Random
from typing import Any

from slb.balance.consistent_hash import ConsistentHash
from slb.balance.upstream import LiveUpstream
from slb.balance.view import RouteView, Without
from slb.model import RouteSettings
from tests.unit.balance.rings import KEYS


class Route:
    """A policy with its upstreams, kept up to date, and a clock that only the test moves."""

    def __init__(self, upstreams: Sequence[LiveUpstream], zone: str = "", **settings: Any) -> None:
        self.now = 1000.0
        self.settings = RouteSettings.model_validate(
            {"policy": "consistent_hash", "ring_debounce": "0s", **settings}
        )
        self.policy = ConsistentHash(Random(5), lambda: self.now, zone)
        self.has(upstreams)

    def has(self, upstreams: Sequence[LiveUpstream]) -> None:
        """These are its upstreams from now on."""
        self.view = RouteView(tuple(sorted(upstreams, key=lambda each: each.member)))
        self.policy.follow(self.upstreams, self.settings)
        self.step()

    def step(self) -> None:
        while self.policy.wake <= self.now:
            for _ in self.policy.steps():
                pass

    def after(self, seconds: float) -> None:
        self.now += seconds
        self.step()

    @property
    def upstreams(self) -> tuple[LiveUpstream, ...]:
        return self.view.upstreams

    def serves(self, upstreams: Sequence[LiveUpstream]) -> None:
        """Of its upstreams only these are available from now on."""
        self.view = RouteView(tuple(upstreams))

    def pick(self, key: bytes, without: Without = None) -> LiveUpstream:
        return self.policy.pick(self.view, key, without)

    def picks(self, without: Without = None) -> list[LiveUpstream]:
        """Whom each key goes to, one request at a time."""
        return [self.pick(key, without) for key in KEYS]
