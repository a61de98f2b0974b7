"""Slots that the whole fleet counts, in a real Valkey: taken with the pick, given back at the stream's end."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, cast

import orjson
import pytest
from envoy.service.ext_proc.v3.external_processor_pb2 import ProcessingResponse

from tests.extproc.rig import Envoy, Picker, Stream, header, hosts_of, refused
from tests.support.valkey import Valkey
from tests.support.waiting import eventually

pytestmark = pytest.mark.asyncio(loop_scope="session")

A, B, C = "10.0.0.1:8000", "10.0.0.2:8000", "10.0.0.3:8000"
CAPPED = {"policy": "least_inflight", "max_inflight": "1"}
QUEUED = {**CAPPED, "when_full": "queue", "queue_timeout": "60s"}


def scores(valkey: Valkey) -> dict[str, int]:
    """What Redis counts."""
    found = valkey.admin.zrange("slb:{/p}:inflight", 0, -1, withscores=True)
    return {str(member): int(score) for member, score in cast("list[tuple[str, float]]", found)}


def queued(valkey: Valkey) -> int:
    return valkey.admin.hlen("slb:{/p}:queue:tickets")


def _queue(valkey: Valkey, length: int) -> bool:
    return queued(valkey) == length


async def counted(valkey: Valkey, **expected: int) -> None:
    wanted = {{"a": A, "b": B, "c": C}[name]: count for name, count in expected.items()}
    await eventually(lambda: scores(valkey) == wanted, what=f"Redis counts {scores(valkey)}")


async def test_a_slot_is_held_until_the_stream_ends_not_the_head_of_the_reply(pickers: Any, valkey: Valkey) -> None:
    picker = await pickers(redis=valkey.url)
    picker.route("/p", A, **CAPPED)
    stream = await picker.envoy().ask()
    assert await stream.hosts() == [A, A]
    await counted(valkey, a=1)
    await stream.replied()
    assert (await picker.envoy().refusal()).status.code == 503  # it is still there
    assert scores(valkey) == {A: 1}
    await stream.end()
    await counted(valkey)
    assert picker.metrics.extproc.moved == {}


async def _half_closed(stream: Stream, envoy: Envoy) -> None:
    await stream.end()


async def _reset(stream: Stream, envoy: Envoy) -> None:
    stream.reset()


async def _dead(stream: Stream, envoy: Envoy) -> None:
    await envoy.close()


@pytest.mark.parametrize("leave", [_half_closed, _reset, _dead])
@pytest.mark.parametrize("has_replied", [False, True])
async def test_whatever_ends_the_stream_the_slot_is_given_back_once(
    pickers: Any, valkey: Valkey, leave: Callable[[Stream, Envoy], Any], has_replied: bool
) -> None:
    picker = await pickers(redis=valkey.url)
    picker.route("/p", A, **CAPPED)
    envoy = picker.envoy()
    stream = await envoy.ask()
    await stream.hosts()
    if has_replied:
        await stream.replied()
    await leave(stream, envoy)
    await counted(valkey)
    assert await picker.envoy().get() == [A, A]
    await counted(valkey)
    statuses = [each["status"] for each in picker.logged()]
    assert statuses == [200 if has_replied else 499, 200]


@pytest.mark.parametrize("leave", [_half_closed, _reset, _dead])
async def test_who_leaves_while_waiting_leaves_the_queue(
    pickers: Any, valkey: Valkey, leave: Callable[[Stream, Envoy], Any]
) -> None:
    picker = await pickers(redis=valkey.url)
    picker.route("/p", A, **QUEUED)
    first = await picker.envoy().ask()
    await first.hosts()
    envoy = picker.envoy()
    waiting = await envoy.ask()
    await eventually(lambda: queued(valkey) == 1)
    await leave(waiting, envoy)
    await eventually(lambda: queued(valkey) == 0)
    await first.end()
    await counted(valkey)
    assert picker.metrics.extproc.unanswered == 1


async def test_what_is_full_is_refused_with_the_reason_and_when_to_come_again(pickers: Any, valkey: Valkey) -> None:
    picker = await pickers(redis=valkey.url)
    picker.route("/p", A, B, **CAPPED)
    envoy = picker.envoy()
    streams = [await envoy.ask() for _ in range(3)]
    answers = [await stream.answer() for stream in streams]
    full = [each.immediate_response for each in answers if each.HasField("immediate_response")]
    assert len(full) == 1
    assert full[0].status.code == 503
    assert header(full[0], "retry-after") == "1"
    assert orjson.loads(full[0].body)["error"] == "pool_saturated"
    assert {hosts_of(each)[0] for each in answers if each.HasField("request_headers")} == {A, B}
    for stream in streams:
        await stream.end()
    await counted(valkey)


async def test_the_cap_holds_over_all_external_processors(pickers: Any, valkey: Valkey) -> None:
    made: list[Picker] = [await pickers(redis=valkey.url, name=f"p{number}") for number in range(2)]
    for picker in made:
        picker.route("/p", A, B, C, **QUEUED)
    envoys = [picker.envoy() for picker in made]
    streams = [await envoys[number % 2].ask() for number in range(6)]
    first: dict[int, str] = {}

    async def follow(number: int) -> None:
        first[number] = (await streams[number].hosts())[0]

    following = [asyncio.create_task(follow(number)) for number in range(6)]
    await eventually(lambda: len(first) == 3)
    await eventually(lambda: queued(valkey) == 3)
    assert set(first.values()) == {A, B, C}
    served = set(first)
    for number in served:
        await streams[number].end()
    await asyncio.gather(*following)
    assert {first[number] for number in range(6) if number not in served} == {A, B, C}
    for number in range(6):
        if number not in served:
            await streams[number].end()
    await counted(valkey)


async def test_envoy_is_told_that_an_answer_takes_as_long_as_the_queue(pickers: Any, valkey: Valkey) -> None:
    picker = await pickers(redis=valkey.url)
    picker.route("/p", A, **QUEUED)
    envoy = picker.envoy()
    first = await envoy.ask()
    await first.hosts()
    waiting = await envoy.ask()
    told: ProcessingResponse = await waiting.answer()
    assert 60 <= told.override_message_timeout.seconds <= 70
    await first.end()
    assert await waiting.hosts() == [A, A]
    await waiting.end()


async def test_one_class_waits_behind_another_by_the_header(pickers: Any, valkey: Valkey) -> None:
    picker = await pickers(redis=valkey.url)
    picker.route("/p", A, **QUEUED, priorities="high=1000,low=1")
    envoy = picker.envoy()
    first = await envoy.ask()
    await first.hosts()
    low = []
    for number in range(3):
        low.append(await envoy.ask(headers={"x-priority": "low"}))
        await eventually(partial(_queue, valkey, number + 1))
    high = await envoy.ask(headers={"x-priority": "high"})
    await eventually(lambda: queued(valkey) == 4)
    await first.end()
    order: list[str] = []

    async def follow(name: str, stream: Stream) -> None:
        await stream.hosts()
        order.append(name)
        await stream.end()

    await asyncio.gather(*(follow("low", each) for each in low), follow("high", high))
    assert order.index("high") <= 1


async def test_a_request_that_waits_too_long_is_refused(pickers: Any, valkey: Valkey) -> None:
    picker = await pickers(redis=valkey.url)
    picker.route("/p", A, **{**QUEUED, "queue_timeout": "50ms"})
    envoy = picker.envoy()
    first = await envoy.ask()
    await first.hosts()
    response = await refused(await envoy.ask())
    assert orjson.loads(response.body)["error"] == "queue_timeout"
    await first.end()


async def test_the_slot_goes_where_envoys_retry_has_ended(pickers: Any, valkey: Valkey) -> None:
    picker = await pickers(redis=valkey.url)
    picker.route("/p", A, B, policy="least_inflight")
    stream = await picker.envoy().ask()
    first, second = await stream.hosts()
    await eventually(lambda: scores(valkey) == {first: 1})
    await stream.replied(served=second, attempts=2)
    await eventually(lambda: scores(valkey) == {second: 1})
    assert picker.inflight() == {second: 1}
    assert picker.witness.failures == [(first, "retried")]
    await stream.end()
    await counted(valkey)
    assert picker.logged()[0]["upstream"] == second
    assert picker.logged()[0]["attempts"] == 2
    assert picker.metrics.extproc.moved == {"retry": 1}


@pytest.mark.parametrize(
    ("status", "details", "is_kept"),
    [
        (500, "via_upstream", True),
        (429, "via_upstream", True),
        (503, "upstream_reset_before_response_started{connection_termination}", True),
        (503, "overload", False),
        (404, "via_upstream", False),
    ],
)
async def test_a_slot_where_a_request_failed_is_kept_as_long_as_the_judge_says(
    pickers: Any, valkey: Valkey, status: int, details: str, is_kept: bool
) -> None:
    picker = await pickers(redis=valkey.url)
    picker.route("/p", A, **CAPPED)
    picker.witness.holds = 3.0
    stream = await picker.envoy().ask()
    await stream.hosts()
    await stream.replied(status, served=A, details=details)
    await stream.end()
    await eventually(lambda: len(picker.logged()) == 1)
    assert picker.inflight() == ({A: 1} if is_kept else {})
    assert picker.witness.held == ([A] if is_kept else [])
    await counted(valkey)
    assert picker.inflight() == {}


async def test_a_slot_that_a_retry_has_left_is_kept_as_well(pickers: Any, valkey: Valkey) -> None:
    picker = await pickers(redis=valkey.url)
    picker.route("/p", A, B, policy="least_inflight")
    picker.witness.holds = 5.0
    stream = await picker.envoy().ask()
    first, second = await stream.hosts()
    await stream.replied(served=second, attempts=2)
    assert picker.inflight() == {first: 1, second: 1}
    await stream.end()
    await eventually(lambda: scores(valkey) == {first: 1}, what="that of the answered one is free")
    assert picker.witness.held == [first]
    await counted(valkey)


async def test_a_pick_that_envoy_does_not_know_is_not_blamed(pickers: Any, valkey: Valkey) -> None:
    picker = await pickers(redis=valkey.url)
    picker.route("/p", A, B, **CAPPED)
    stream = await picker.envoy().ask()
    first = (await stream.hosts())[0]
    other = ({A, B} - {first}).pop()
    await stream.replied(served=other, attempts=1)  # by its fallback
    await eventually(lambda: scores(valkey) == {other: 1})
    assert picker.witness.failures == []
    assert picker.metrics.extproc.moved == {"unknown": 1}
    await stream.end()
    await counted(valkey)


async def test_a_host_that_slb_does_not_know_leaves_the_slot_where_it_is(pickers: Any, valkey: Valkey) -> None:
    picker = await pickers(redis=valkey.url)
    picker.route("/p", A, **CAPPED)
    stream = await picker.envoy().ask()
    await stream.hosts()
    await stream.replied(served=C)
    assert scores(valkey) == {A: 1}
    await stream.end()
    await counted(valkey)
