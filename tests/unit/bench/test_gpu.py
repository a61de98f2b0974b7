"""Fleets in front of pods that serve one request at a time: how they are set up, and what is shown of them."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import typer
from rich.console import Console

from bench.gpu.command import BALANCERS, Balancer, CaseResult, Standing, chosen_services
from bench.gpu.work import Work
from bench.peers import Site
from bench.sending import Result
from bench.timers import Timers


async def test_timers_fire_in_the_order_of_their_times_and_not_before() -> None:
    loop = asyncio.get_running_loop()
    timers, done, fired = Timers(loop), asyncio.Event(), list[tuple[str, bool]]()
    begun = time.monotonic()

    def note(name: str, due: float) -> Callable[[], None]:
        return lambda: fired.append((name, time.monotonic() >= due))

    for name, due in (("late", begun + 0.02), ("early", begun + 0.01), ("gone by", begun - 1)):
        timers.at(due, note(name, due))
    timers.at(begun + 0.021, done.set)
    assert fired == []
    await done.wait()
    timers.close()
    assert fired == [("gone by", True), ("early", True), ("late", True)]


def test_shed_requests_are_no_errors_and_have_no_part_in_the_percentiles() -> None:
    result = Result([200, 503, 200, 0, 500], [0.2, 0.001, 0.1, 9, 9], [0.0] * 5)
    standing = Standing.of("x", result)
    assert standing.latencies_ms == [200, 100]
    assert (standing.requests, standing.shed, standing.errors, standing.p99) == (5, 1, 2, 200)


def case(service: float = 0.2, **p99s: float) -> CaseResult:
    """A case whose ideal has a p99 of 100 ms."""
    standings = {
        name: Standing(name, (p99,) if p99 else (), 10, failure="" if p99 else "fell") for name, p99 in p99s.items()
    }
    work = Work("poisson", "some work", [0.0], [0.1], [0], service)
    return CaseResult(work, Standing("ideal", (100.0,), 10), Standing("exact", (125.0,), 10), standings)


def met(result: CaseResult) -> list[bool | None]:
    goals = result.goals()
    return [figure.met for figure in goals.figures] if goals else []


def test_goals_are_multiples_of_the_ideal_and_envoy_s_of_slb_s() -> None:
    assert met(case(**{"envoy": 275, "slb": 135, "slb-queue": 110})) == [True, True, True, True]
    assert met(case(**{"envoy": 269, "slb": 136, "slb-queue": 111})) == [False, False, False, False]


@pytest.mark.parametrize(("service", "most"), [(0.05, {"slb-queue": 120}), (0.1, {"slb": 130, "slb-queue": 110})])
def test_shorter_services_have_goals_of_their_own(service: float, most: dict[str, float]) -> None:
    assert met(case(service, envoy=1000, **most)) == [True] * len(most)
    assert met(case(service, envoy=1000, **{name: p99 + 1 for name, p99 in most.items()})) == [False] * len(most)


def test_goals_are_those_of_the_balancers_that_took_part_at_service_times_that_have_some() -> None:
    assert case(0.3, envoy=1000, slb=100).goals() is None
    assert (met(case(slb=120)), met(case(envoy=300))) == ([True], [])


@pytest.mark.parametrize("text", ["", "soon", "0.1,", "0.0001", "inf"])
def test_what_is_no_service_time_is_refused(text: str) -> None:
    with pytest.raises(typer.Exit):
        chosen_services(text)


def test_a_balancer_that_failed_misses_its_goals_and_is_named() -> None:
    result = case(envoy=300, slb=0)
    section = result.table()
    assert met(result) == [False, False]
    assert section.notes == ["slb: fell"]
    assert [figure.met for figure in section.figures] == [False]


def test_a_table_has_a_row_for_each_balancer_with_its_multiples() -> None:
    console = Console(width=120)
    with console.capture() as capture:
        console.print(case(**{"envoy": 300, "slb": 120, "slb-queue": 0}).table().table())
    rows = [line.split() for line in capture.get().splitlines()[2:]]
    assert rows[2] == ["envoy", "300", "300", "300", "300", "3.00", "2.50", "-", "0", "0"]
    assert rows[4] == ["slb-queue", *["-"] * 7, "0", "0"]


@pytest.mark.parametrize(
    "balancer", [each for each in BALANCERS if each.settings is None], ids=lambda each: each.name
)
def test_a_fleet_s_proxy_listens_on_the_loopback_and_has_every_pod(balancer: Balancer, tmp_path: Path) -> None:
    site = Site(tmp_path, 8000, 0, tuple(range(9001, 9021)), "someone")
    argv = balancer.needs.command("/bin/program", site)
    (name,) = balancer.needs.configs
    written = (tmp_path / name).read_text()
    assert str(tmp_path / name) in " ".join(argv)
    assert "@" not in written.replace('"@type"', "")
    assert all(written.count(str(port)) >= 1 for port in site.upstreams)
    assert "127.0.0.1:8000" in written or "port_value: 8000" in written
