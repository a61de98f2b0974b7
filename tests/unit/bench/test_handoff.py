"""The handoff: what pods note of themselves, and a run of each kind that is as small as can be."""

import asyncio
from collections.abc import Callable
from random import Random

import pytest
import typer

from bench.handoff.alone import Clients
from bench.handoff.command import goals_of, sections
from bench.handoff.gaps import Book, Gap, Handoffs, Schedule
from bench.handoff.plan import SETTINGS, Plan
from bench.outcome import instance_counts
from bench.simulated import PATH, Request, simulated
from bench.timers import Timers
from slb.model import RouteSettings
from tests.support.valkey import Valkey
from tests.support.waiting import eventually

PLAN = Plan([10], 20, 1.0, 0.1, 1)


def test_a_pod_is_idle_from_the_end_of_one_request_to_the_beginning_of_the_next() -> None:
    book = Book()
    book.began("pod", "a", 1.0)
    book.ended("pod", "a", 2.0)
    book.began("pod", "a", 2.25)
    book.ended("pod", "a", 3.0)
    book.began("pod", "b", 3.5)
    assert book.take() == ([Gap(0.25, True), Gap(0.5, False)], 0)
    assert book.take() == ([], 0)


def test_a_request_that_comes_to_a_busy_pod_crowds_it_and_is_no_gap() -> None:
    book = Book()
    book.began("pod", "a", 1.0)
    book.began("pod", "b", 1.5)
    book.ended("pod", "a", 2.0)
    book.ended("pod", "b", 2.5)
    book.began("pod", "a", 3.0)
    assert book.take() == ([Gap(0.5, False)], 1)


def test_in_step_all_requests_end_at_one_moment_and_each_takes_half_a_service_at_least() -> None:
    schedule = Schedule(0.1, True, Random(1))
    assert {round(schedule.end_of(now), 6) for now in (10.0, 10.02, 10.049)} == {10.1}
    assert round(schedule.end_of(10.06), 6) == 10.2


def test_out_of_step_services_differ_about_their_mean() -> None:
    schedule = Schedule(0.1, False, Random(1))
    ends = {schedule.end_of(5.0) for _ in range(100)}
    assert len(ends) == 100
    assert all(5.075 <= end <= 5.125 for end in ends)


def handoffs(seconds: float, instances: int = 10) -> Handoffs:
    return Handoffs("slb serve", instances, False, [Gap(seconds, True), Gap(seconds, False)], 0)


def test_the_goals_are_those_of_ten_instances_and_the_median_of_others() -> None:
    assert [figure.met for figure in goals_of(handoffs(0.001), pods=20)] == [True, True, True]
    assert [figure.met for figure in goals_of(handoffs(0.006), pods=20)] == [False, False, False]
    assert [figure.met for figure in goals_of(handoffs(0.001, instances=5), pods=20)] == [True]
    assert goals_of(handoffs(0.001), pods=19) == []


def test_what_was_seen_is_shown_by_run() -> None:
    real, alone, goals = sections([handoffs(0.001)], PLAN)
    assert (real.table().row_count, alone.table().row_count, len(goals.figures)) == (1, 0, 3)


@pytest.mark.parametrize("text", ["", "0", "1,,2", "two"])
def test_what_is_no_number_of_instances_is_refused(text: str) -> None:
    with pytest.raises(typer.Exit):
        instance_counts(text)


async def test_instances_without_http_share_pods_and_hand_them_on(valkey: Valkey) -> None:
    members = [f"10.0.0.{number}:80" for number in range(3)]
    timers = Timers(asyncio.get_running_loop())
    async with simulated(valkey.url, 3, members, RouteSettings.model_validate(SETTINGS), 1) as fleet:
        clients = Clients(fleet, timers, Schedule(0.01, False, Random(1)), Random(1))
        for _ in range(9):
            clients.ask()
        await eventually(lambda: len(clients.book.gaps) > 30)
        await clients.stop()
        assert not clients.failed
    timers.close()
    assert valkey.admin.zrange(f"slb:{{{PATH}}}:inflight", 0, -1) == []


async def test_a_request_for_a_full_pool_that_does_not_queue_is_told_why(valkey: Valkey) -> None:
    settings = RouteSettings.model_validate({"policy": "least_inflight", "max_inflight": 1, "when_full": "shed"})
    held: list[Callable[[], None]] = []
    refused: list[str] = []
    async with simulated(valkey.url, 1, ["10.0.0.1:80"], settings, 1) as (instance,):
        for _ in range(2):
            instance.enter(Request(lambda _, release: held.append(release), refused.append))
        await eventually(lambda: bool(held and refused))
        held[0]()
    assert refused[0].startswith("pool_saturated")
