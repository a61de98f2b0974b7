"""The caller's library against real routers."""

import asyncio
from dataclasses import replace

import pytest

from slb.quota.client import Admission, CallRefused, LeaseLapsed, Persistence, Router
from tests.process.commands import Commands
from tests.support.quota_routers import Routers
from tests.support.valkey import Valkey
from tests.support.waiting import until, within

LEASE = 3.0
LIMITS = {"max_tokens_per_minute": 60, "max_concurrent_requests": 2, "burst": 10_000}


@pytest.fixture
async def routers(slb: Commands, valkey: Valkey) -> Routers:
    """Two, and a model that refills a token a second."""
    routers = Routers(slb, valkey, LEASE)
    await routers.start(2)
    await routers.put("m", LIMITS)
    return routers


async def tokens(routers: Routers) -> float:
    found: float = (await routers.models())["m"]["tokens"]
    return found


async def test_a_task_takes_its_estimate_and_is_settled_by_what_it_came_to(routers: Routers) -> None:
    async with Router.at(routers.urls) as router:
        async with router.admitted(6000) as task:
            assert task.model_backend_id == "m"
            assert (await routers.models())["m"]["in_flight"] == 1
            assert 4000 <= await tokens(routers) < 4100
            task.actual_tokens = 1000
        assert (await routers.models())["m"]["in_flight"] == 0
        assert 9000 <= await tokens(routers) < 9100


async def test_heartbeats_keep_a_task_longer_than_a_lease(routers: Routers) -> None:
    async with Router.at(routers.urls, beat=LEASE / 4) as router:
        async with router.admitted(6000) as task:
            await asyncio.sleep(2 * LEASE)
            assert (await routers.models())["m"]["in_flight"] == 1
        assert not task.lapsed
    assert not await routers.abandoned()


async def test_a_caller_without_the_lease_gets_it_from_the_answer(routers: Routers) -> None:
    async with Router.at(routers.urls, beat=1_000) as router:
        async with router.admitted(6000) as task:
            await asyncio.sleep(2 * LEASE)
        assert not task.lapsed
    assert not await routers.abandoned()


async def test_what_was_abandoned_is_read_page_by_page(routers: Routers) -> None:
    await routers.put("m", {"max_concurrent_requests": 1200, "max_tokens_per_minute": 10**6})
    async with Router.at(routers.urls) as router:
        given = await asyncio.gather(*(router.schedule(1) for _ in range(1100)))
        assert all(isinstance(each, Admission) for each in given)
        listed = await until(router.abandoned, lambda found: len(found) >= len(given))
    assert {task["task_id"] for task in listed} == {each.task_id for each in given if isinstance(each, Admission)}
    assert len(await routers.abandoned()) == 1000


async def test_a_task_without_heartbeats_is_taken_back_and_its_caller_gets_an_error(routers: Routers) -> None:
    async with Router.at(routers.urls, beat=2 * LEASE) as router:
        admission = await router.schedule(6000)
        assert isinstance(admission, Admission)
        late = router.hold(replace(admission, lease_ms=None), interrupt=True)
        with pytest.raises(LeaseLapsed):
            async with within(10 * LEASE), late as task:
                await asyncio.Event().wait()
    assert [each["task_id"] for each in await routers.abandoned()] == [task.task_id]
    assert await tokens(routers) == 10_000


async def test_a_task_outlives_the_instance_that_admitted_it(routers: Routers) -> None:
    quick = Persistence(first_pause=0.05, last_pause=0.1)
    async with Router.at(routers.urls, beat=LEASE / 4, persistence=quick) as router:
        async with router.admitted(6000) as task:
            await routers.end(0)
            await asyncio.sleep(2 * LEASE)
        assert not task.lapsed
        assert (await routers.models())["m"]["in_flight"] == 0


async def test_callers_wait_for_a_slot_and_all_have_their_turn(routers: Routers) -> None:
    done = []

    async def call(router: Router, number: int) -> None:
        async with router.admitted(10):
            await asyncio.sleep(0.05)
            done.append(number)

    async with Router.at(routers.urls) as router, asyncio.TaskGroup() as group:
        for number in range(8):
            group.create_task(call(router, number))
    assert sorted(done) == list(range(8))


async def test_an_estimate_that_no_model_can_ever_take_is_refused_by_name(routers: Routers) -> None:
    async with Router.at(routers.urls) as router:
        with pytest.raises(CallRefused) as caught:
            await router.admit(10_001)
    assert caught.value.reason == "estimate_exceeds_limit"
