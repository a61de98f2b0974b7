"""Which load of its own an upstream may have, by each signal."""

from math import inf

import pytest

from slb.balance.bounded_load import Found
from slb.balance.load_limit import LoadLimit
from slb.balance.load_stats import NONE, LoadStats
from slb.balance.ring import Ring
from slb.balance.split import Split
from slb.balance.upstream import Handle
from slb.model import RouteSettings
from tests.unit.balance.rings import fleet


class Pool:
    """The limit of a route with so many upstreams, of which each is expected to have an equal part."""

    def __init__(self, count: int, **settings: object) -> None:
        self.upstreams = fleet(count)
        self.limit = LoadLimit(RouteSettings.model_validate(settings))
        for each in self.upstreams:
            each.load_stats = LoadStats(lambda: 1000.0)
        self.limit.pool.watch([each.load_stats for each in self.upstreams if each.load_stats is not None])
        self.limit.split = Split([(Ring.of(self.upstreams), 1.0)], frozenset(self.upstreams))
        self._held: list[Handle] = []

    def send(self, *counts: int) -> None:
        """So many requests to each upstream."""
        for upstream, count in zip(self.upstreams, counts, strict=False):
            self._held += [Handle(upstream) for _ in range(count)]

    def found(self) -> Found:
        return self.limit.find(self.upstreams, self.upstreams)


@pytest.mark.parametrize(
    ("signal", "keeps", "distance", "room"),
    [("effective", False, 1, 1.0), ("inflight", False, 1, NONE), ("off", True, 0, inf)],
)
def test_an_upstream_with_all_requests_is_passed_over_unless_load_is_off(
    signal: str, keeps: bool, distance: int, room: float
) -> None:
    pool = Pool(4, load_signal=signal)
    pool.send(8)
    assert pool.limit.keeps(pool.upstreams[0]) is keeps
    assert pool.found() == (pool.upstreams[distance], distance)
    assert pool.limit.room_of(pool.upstreams[0]) == room


def test_the_threshold_is_the_expected_part_and_one_request_times_the_factor() -> None:
    pool = Pool(4, balance_factor=1.5)
    pool.send(3, 2, 1, 1)
    assert {pool.limit.threshold(each) for each in pool.upstreams} == {1.5 * (1 + (7 + 1) / 4)}
    assert pool.limit.keeps(pool.upstreams[0]), "3 of a threshold of 4.5"
    pool.limit.follow(RouteSettings(balance_factor=2.0))
    assert pool.limit.threshold(pool.upstreams[0]) == 2.0 * 3
    assert pool.limit.split.expected(pool.upstreams[0]) == 0.25
