"""The caller's library, against a router of a few lines."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from random import Random
from typing import Any

import pytest

from slb.quota.client import Advice, CallRefused, LeaseLapsed, Persistence, Router, RouterUnreachable, Wait
from tests.support.documents import samples_of
from tests.support.quota import SmallRouter
from tests.support.waiting import eventually

QUICK = Persistence(timeout=2.0, first_pause=0.01, last_pause=0.02, patience=0.2)
LASTING = Persistence(timeout=600.0, first_pause=0.01, last_pause=0.02, patience=600.0)
SOON = 0.01


@pytest.fixture
async def small() -> AsyncIterator[SmallRouter]:
    async with SmallRouter().serving() as serving:
        yield serving


@pytest.fixture
async def router(small: SmallRouter) -> AsyncIterator[Router]:
    async with Router.at(small.url, beat=SOON, persistence=QUICK) as made:
        yield made


async def test_a_task_waits_as_often_as_that_is_answered_and_runs_when_it_is_admitted(
    small: SmallRouter, router: Router
) -> None:
    small.waits = [1, 2]
    async with router.admitted(1800) as task:
        assert (task.model_backend_id, task.task_id) == ("m1", "tsk_0")
        assert len(small.asked) == 3
        assert not small.completed
    assert small.completed == [{"task_id": "tsk_0"}]


async def test_all_asks_of_one_task_carry_one_key_and_two_tasks_two(small: SmallRouter, router: Router) -> None:
    small.waits = [1]
    async with router.admitted(1, models=["m1", "m2"]), router.admitted(1):
        keys = [asked["idempotency_key"] for asked in small.asked]
    assert keys[0] == keys[1] != keys[2]
    assert [asked.get("models") for asked in small.asked] == [["m1", "m2"]] * 2 + [None]


async def test_the_actual_tokens_are_sent_at_the_end(small: SmallRouter, router: Router) -> None:
    async with router.admitted(1800) as task:
        task.actual_tokens = 1650
    assert small.completed == [{"task_id": "tsk_0", "actual_tokens": 1650}]


async def test_a_task_that_fails_is_completed_too(small: SmallRouter, router: Router) -> None:
    with pytest.raises(ZeroDivisionError):
        async with router.admitted(1800):
            raise ZeroDivisionError
    assert not small.running


async def test_a_task_that_is_cancelled_is_completed_too(small: SmallRouter, router: Router) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(SOON), router.admitted(1800):
            await asyncio.Event().wait()
    assert not small.running


async def test_heartbeats_are_sent_while_the_block_runs_and_not_after(small: SmallRouter, router: Router) -> None:
    async with router.admitted(1800):
        await eventually(lambda: len(small.beats) >= 3)
    before = len(small.beats)
    await asyncio.sleep(5 * SOON)
    assert len(small.beats) == before


async def test_the_beat_follows_the_lease_the_router_tells(small: SmallRouter) -> None:
    small.lease_ttl_ms = 30
    async with Router.at(small.url, beat=1000) as router, router.admitted(1800):
        await eventually(lambda: len(small.beats) >= 3)


async def test_a_lapsed_lease_is_shown_and_the_block_goes_on(small: SmallRouter, router: Router) -> None:
    async with router.admitted(1800) as task:
        small.lapsed.add(task.task_id)
        await eventually(lambda: task.lapsed)
    assert len(small.completed) == 1


async def test_or_it_is_interrupted_where_the_caller_wants_that(small: SmallRouter, router: Router) -> None:
    small.lapsed.add("tsk_0")
    with pytest.raises(LeaseLapsed, match="tsk_0"):
        async with router.admitted(1800, interrupt=True):
            await asyncio.Event().wait()
    assert len(small.completed) == 1


async def test_a_lease_that_lapsed_between_two_heartbeats_is_shown_by_the_completion(small: SmallRouter) -> None:
    async with Router.at(small.url, beat=1000) as router:
        async with router.admitted(1800) as task:
            small.lapsed.add(task.task_id)
        assert task.lapsed


async def test_an_instance_that_is_gone_is_passed_over(small: SmallRouter) -> None:
    urls = ["http://127.0.0.1:1", small.url]
    for seed in range(4):
        async with Router.at(urls, persistence=QUICK, rng=Random(seed)) as router, router.admitted(1):
            pass
    assert len(small.completed) == 4


async def test_each_caller_goes_on_asking_the_instance_that_answered(small: SmallRouter) -> None:
    async with SmallRouter().serving() as other:
        for seed in range(8):
            before = len(small.asked), len(other.asked)
            urls = [small.url, other.url]
            async with Router.at(urls, persistence=QUICK, rng=Random(seed)) as router:
                for _ in range(3):
                    async with router.admitted(1):
                        pass
            assert {len(small.asked) - before[0], len(other.asked) - before[1]} == {0, 3}
        assert small.asked, "not all callers ask the first"
        assert other.asked, "nor the second"


async def test_an_instance_that_has_no_redis_is_passed_over_too(small: SmallRouter) -> None:
    async with SmallRouter().serving() as other, Router.at([small.url, other.url], persistence=QUICK) as router:
        small.broken = True
        async with router.admitted(1):
            assert other.running
            other.broken, small.broken = True, False
        assert small.completed


async def test_a_router_that_comes_back_in_time_is_waited_for(small: SmallRouter, router: Router) -> None:
    small.broken = True
    asking = asyncio.create_task(router.admit(1))
    await eventually(lambda: small.refused > 1)
    small.broken = False
    async with await asking:
        pass


async def test_one_that_does_not_is_given_up_by_name(small: SmallRouter, router: Router) -> None:
    small.broken = True
    with pytest.raises(RouterUnreachable, match=r"POST /schedule: .*redis_down"):
        await router.admit(1)


async def test_one_that_does_not_answer_in_time_is_given_up_too(small: SmallRouter) -> None:
    small.held.clear()
    hasty = Persistence(timeout=SOON, first_pause=SOON, last_pause=SOON, patience=SOON)
    async with Router.at(small.url, persistence=hasty) as router:
        with pytest.raises(RouterUnreachable, match=f"{small.url}: .*Timeout"):
            await router.admit(1)


async def test_a_result_is_not_lost_because_the_router_cannot_be_reached(
    small: SmallRouter, router: Router, caplog: pytest.LogCaptureFixture
) -> None:
    async with router.admitted(1):
        small.broken = True
    assert "its lease will lapse" in caplog.text


async def test_a_lost_answer_is_asked_for_again_and_no_second_slot_is_taken(
    small: SmallRouter, router: Router
) -> None:
    small.lost_answers = 1
    async with router.admitted(1):
        assert len(small.running) == 1
        assert len(small.asked) == 2
    assert not small.running


async def test_leaving_while_being_admitted_gives_back_the_slot_and_the_tokens(
    small: SmallRouter,
) -> None:
    small.held.clear()
    async with Router.at(small.url) as router:
        asking = asyncio.create_task(router.admit(1800))
        await eventually(lambda: len(small.asked) == 1)
        asking.cancel()
        await asyncio.wait([asking])
        small.held.set()
    assert small.completed == [{"task_id": "tsk_0", "actual_tokens": 0}]


async def test_closing_a_router_that_does_not_answer_ends_after_the_grace_and_is_logged(
    small: SmallRouter, caplog: pytest.LogCaptureFixture
) -> None:
    small.held.clear()
    async with asyncio.timeout(20):  # far less than the patience
        async with Router.at(small.url, grace=SOON, persistence=LASTING) as router:
            asking = asyncio.create_task(router.admit(1800))
            await eventually(lambda: len(small.asked) == 1)
            asking.cancel()
            await asyncio.wait([asking])
    assert "not given back at closing: 1" in caplog.text


async def held(router: Router) -> None:
    async with router.admitted(1800):
        await asyncio.Event().wait()


async def test_leaving_the_block_while_the_router_is_away_does_not_wait_for_its_return(
    small: SmallRouter,
) -> None:
    async with asyncio.timeout(20), Router.at(small.url, grace=SOON, persistence=LASTING) as router:
        calling = asyncio.create_task(held(router))
        await eventually(lambda: len(small.running) == 1)
        small.broken = True
        calling.cancel()
        await asyncio.wait([calling])
        small.broken = False
        await eventually(lambda: not small.running)  # it is tried on meanwhile


ASKED: list[Callable[[Router], Awaitable[Any]]] = [
    lambda router: router.admit(1),
    lambda router: router.heartbeat("tsk_0"),
    lambda router: router.complete("tsk_0"),
    lambda router: router.advice(),
    lambda router: router.abandoned(),
]


@pytest.mark.parametrize("ask", ASKED)
async def test_what_answers_as_no_router_does_is_named_and_not_asked_again(
    small: SmallRouter, ask: Callable[[Router], Awaitable[Any]]
) -> None:
    small.stranger = True
    async with asyncio.timeout(20), Router.at(small.url, persistence=LASTING) as router:
        with pytest.raises(CallRefused, match=f"what answers at {small.url} is no quota router"):
            await ask(router)


async def test_a_text_is_no_list_of_models(small: SmallRouter, router: Router) -> None:
    with pytest.raises(TypeError, match=r"models='mistral-large': give a list"):
        await router.admit(1, models="mistral-large")
    assert not small.asked


async def test_a_refusal_has_the_routers_name_and_is_not_repeated(small: SmallRouter, router: Router) -> None:
    with pytest.raises(CallRefused, match="estimate_exceeds_limit: too large") as caught:
        await router.admit(10**9)
    assert caught.value.reason == "estimate_exceeds_limit"
    assert len(small.asked) == 1


async def test_a_single_ask_is_answered_with_the_wait(small: SmallRouter, router: Router) -> None:
    small.waits = [1500]
    answer = await router.schedule(1)
    assert isinstance(answer, Wait)
    assert answer.seconds == 1.5


async def test_advice_and_what_was_abandoned_can_be_read(small: SmallRouter, router: Router) -> None:
    small.lapsed.add("tsk_7")
    assert await router.advice() == Advice(0.25, 14)
    assert [task["task_id"] for task in await router.abandoned()] == ["tsk_7"]


async def test_the_sample_in_the_documents_runs(small: SmallRouter, capsys: pytest.CaptureFixture[str]) -> None:
    (sample,) = samples_of("quota.md", "")
    program = sample.replace("http://127.0.0.1:8081", small.url)
    await asyncio.to_thread(exec, compile(program, "sample", "exec"), {})
    assert capsys.readouterr().out == "m1: HELLO\n"
    assert small.completed == [{"task_id": "tsk_0", "actual_tokens": 12}]


def test_a_router_needs_an_address() -> None:
    with pytest.raises(ValueError, match="at least one"):
        Router.at([])


@pytest.mark.parametrize("url", ["127.0.0.1:8081", "ftp://a", "http://", "http://a:99999", "http://a:0"])
def test_what_is_no_url_is_refused_at_once(url: str) -> None:
    with pytest.raises(ValueError, match="is not a URL such as"):
        Router.at(url)
