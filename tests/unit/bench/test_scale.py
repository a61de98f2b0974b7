"""Many instances on one pool: what is shown of it, and a run that is as small as can be."""

from collections.abc import Callable
from pathlib import Path

import pytest

from bench.command import Bench
from bench.figures.scale import POLICIES, growth, limit_words, scale, simulated
from bench.processes import Processes
from slb.balance.upstream import Handle
from slb.errors import Reason
from slb.model import RouteSettings
from tests.support.valkey import Valkey
from tests.support.waiting import eventually


def test_many_may_cost_redis_half_as_much_again_as_two() -> None:
    for cpu, met in ((150.0, True), (151.0, False)):
        (section,) = growth({2: 100.0, 10: 1.0, 100: cpu}, 1000)
        assert [figure.met for figure in section.figures] == [met]


def test_other_numbers_have_no_goal_and_one_alone_is_beside_nothing() -> None:
    (section,) = growth({2: 100.0, 50: 100.0}, 1000)
    assert [figure.met for figure in section.figures] == [None]
    assert growth({2: 100.0}, 1000) == []


def test_a_limit_of_the_bench_itself_is_not_shown_as_one_of_slb() -> None:
    assert limit_words(reached=True, late=False) == "an instance decides alone at"
    assert "this process" in limit_words(reached=True, late=True)
    assert "no more than" in limit_words(reached=False, late=True)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_small_run_has_a_figure_for_each_number_of_instances(tmp_path: Path, policy: str) -> None:
    with Processes() as processes:
        bench = Bench(processes, tmp_path, lambda what: None)
        outcome = scale(bench, "1,2", pods=10, rate=50, seconds=0.2, most=50, policy=policy, seed=1)
    assert [section.title.split(",")[0] for section in outcome.sections[:2]] == ["1 instances", "2 instances"]
    for section in outcome.sections[:2]:
        values = {figure.what: figure.value for figure in section.figures}
        assert values["to Redis"] > 0
        assert values["a grant, p50"] > 0


class Waiter:
    """Keeps what it is answered."""

    def __init__(self) -> None:
        self.held: list[Callable[[], None]] = []
        self.refused: list[Reason] = []

    def admitted(self, handle: Handle) -> None:
        self.held.append(handle.release)

    def rejected(self, reason: Reason, detail: str) -> None:
        self.refused.append(reason)


async def test_an_instance_without_http_shares_the_pool_s_slots_and_refuses_what_is_too_much(
    valkey: Valkey,
) -> None:
    settings = RouteSettings.model_validate({"policy": "least_inflight", "max_inflight": 1, "when_full": "shed"})
    waiter = Waiter()
    async with simulated(valkey.url, 2, ["10.0.0.1:80"], settings, 1) as instances:
        for instance in instances:
            instance.enter(waiter)
        await eventually(lambda: bool(waiter.held and waiter.refused))
        waiter.held[0]()
    assert [reason.name for reason in waiter.refused] == ["pool_saturated"]
