"""Who has the places of callbacks: a receiver that is slow or does not answer leaves them to others."""

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping
from random import Random
from typing import cast

import orjson
import pytest

from slb.control.job_replies import Pulse
from slb.control.jobs import JobLane
from slb.job import JobShown
from slb.jobs.callbacks import Callbacks
from slb.jobs.posting import MOST_AT_ONCE
from slb.jobs.receivers import (
    MOST_TO_SILENT,
    MOST_TO_SLOW,
    MOST_TO_STRANGERS,
    SLOW,
    Receivers,
    Sent,
    receiver_of,
)
from slb.jobs.webhook import Reply
from slb.observe.jobs import JobCounts
from tests.support.waiting import eventually

DOWN, WELL = "http://down.example/done", "http://well.example/done"


def ended(id_: str, url: str) -> JobShown:
    counts = (1, 0, 1.0, 1.0, "", "", "", 0, "", -1, 1.0, -1)
    written = orjson.dumps({"payload": 1, "callback_url": url}).decode()
    return JobShown(id_, "flux", "completed", "normal", *counts, written, "1")


class Due:
    """A lane with callbacks that are due; `errors`: of those that were answered for, by job. Each of its replies
    says whether more are due."""

    def __init__(self, post: "Post") -> None:
        self.due: list[JobShown] = []
        self.errors: dict[str, str] = {}
        self.put_off: dict[str, float] = {}
        self.callbacks = Callbacks(post, lambda job: [job.id], (), JobCounts(), Random(1), lambda: 2.0)

    def end(self, name: str, url: str, count: int) -> None:
        """So many jobs with callbacks end."""
        self.due += [ended(f"{name}-{number}", url) for number in range(count)]
        self._reply()

    def _reply(self) -> None:
        self.callbacks.pulse(cast("JobLane", self), Pulse({}, 0.0 if self.due else None, ()))

    async def due_callbacks(self, hold: float, most: int) -> list[JobShown]:
        taken, self.due = self.due[:most], self.due[most:]
        self._reply()
        return taken

    async def callback_sent(self, job: JobShown, error: str = "", again: float | None = None) -> bool:
        self.errors[job.id] = error
        return True

    async def put_off_callback(self, id_: str, seconds: float) -> None:
        self.put_off[id_] = seconds


class Post:
    """One receiver is down: what is sent there is held until `given_up`."""

    def __init__(self) -> None:
        self.given_up = asyncio.Event()
        self.held = 0
        self.sent: Counter[str] = Counter()

    async def __call__(self, url: str, headers: Mapping[str, str], body: bytes) -> Reply:
        self.sent[url] += 1
        if url != DOWN and "silent" not in url:
            return Reply(200)
        self.held += 1
        try:
            await self.given_up.wait()
        finally:
            self.held -= 1
        return Reply(0, "no answer")

    async def aclose(self) -> None:
        """Nothing is open."""


async def test_a_receiver_that_did_not_answer_leaves_the_places_to_others() -> None:
    post = Post()
    lane = Due(post)
    task = asyncio.create_task(lane.callbacks.run())
    lane.end("first", DOWN, 1)
    await eventually(lambda: post.held == 1)
    post.given_up.set()
    await eventually(lambda: lane.errors == {"first-0": "no answer"})
    post.given_up.clear()
    lane.end("down", DOWN, 2 * MOST_AT_ONCE)
    lane.end("well", WELL, 1)
    await eventually(lambda: "well-0" in lane.errors)
    await eventually(lambda: len(lane.put_off) == 2 * MOST_AT_ONCE - MOST_TO_SILENT)
    assert (lane.errors, post.held) == ({"first-0": "no answer", "well-0": ""}, MOST_TO_SILENT)
    post.given_up.set()
    await lane.callbacks.leave(10.0)
    task.cancel()
    await asyncio.wait([task])


@pytest.mark.parametrize(
    ("url", "receiver"),
    [("http://Example.com/x", "example.com"), ("https://user:secret@[2001:db8::1]:8443?y", "[2001:db8::1]:8443")],
)
def test_a_receiver_is_known_by_its_host_and_port(url: str, receiver: str) -> None:
    assert receiver_of(url) == receiver


US, THEM = ("flux", "us"), ("flux", "them")


def answered(receivers: Receivers, *names: str) -> None:
    for name in names:
        receivers.ended(receivers.begins(name, US), 0.0, 0.1)


@pytest.mark.parametrize(("took", "most"), [(None, MOST_TO_SILENT), (SLOW, MOST_TO_SLOW)])
def test_a_receiver_has_fewer_places_until_it_answers_soon(took: float | None, most: int) -> None:
    receivers = Receivers()
    answered(receivers, "a", "b")
    sent = []
    for _ in range(most + 1):
        assert not receivers.put_off("a", US, 0.0)
        sent.append(receivers.begins("a", US))
    receivers.ended(sent.pop(), 0.0, took)
    assert receivers.put_off("a", US, 0.0)
    assert not receivers.put_off("b", US, 0.0)
    receivers.ended(sent.pop(), 0.0, 0.1)
    for _ in range(most + 1):
        receivers.begins("a", US)
    assert not receivers.put_off("a", US, 0.0)


def test_those_that_are_put_off_come_again_as_places_become_free() -> None:
    """However many there are, about one is looked at for each that is sent."""
    receivers = Receivers()
    sent = [receivers.begins("a", US) for _ in range(MOST_TO_SLOW + 1)]
    receivers.ended(sent[0], 0.0, 8.0)
    assert [receivers.put_off("a", US, 100.0) for _ in range(3)] == [0.5, 1.0, 1.5]
    assert receivers.put_off("a", US, 101.0) == 1.0
    assert receivers.put_off("a", US, 200.0) == 0.5
    assert [receivers.put_off("a", US, 300.0) for _ in range(10_000)][-1] == 3600.0


def test_of_very_many_that_are_silent_the_first_is_forgotten() -> None:
    receivers = Receivers()
    answered(receivers, *map(str, range(1_001)))
    for number in range(1_001):
        receivers.ended(receivers.begins(f"{number}", US), 0.0, None)
    for _ in range(MOST_TO_SILENT):
        receivers.begins("0", US)
        receivers.begins("1", US)
    assert not receivers.put_off("0", US, 0.0)
    assert receivers.put_off("1", US, 0.0)


def fill(receivers: Receivers, group: tuple[str, str], names: Iterable[str]) -> list[Sent]:
    """Those that have a place."""
    return [receivers.begins(name, group) for name in names if not receivers.put_off(name, group, 0.0)]


def test_strangers_have_half_of_the_places_at_most_and_their_submitters_share_them() -> None:
    receivers = Receivers()
    answered(receivers, "well")
    hosts = [f"{number}" for number in range(200)]
    assert len(fill(receivers, THEM, hosts)) == MOST_TO_STRANGERS // 2
    assert not receivers.put_off("well", THEM, 0.0)
    for number in range(1, 40):  # however many others name strangers too
        assert not receivers.put_off("well", ("flux", str(number)), 0.0)
        fill(receivers, ("flux", str(number)), hosts)
        under_way = sum(each.strangers for each in receivers._groups.values())
        assert under_way <= MOST_TO_STRANGERS
        assert number > 1 or len(fill(receivers, ("zimg", str(number)), ["new"])) == 1


def test_receivers_that_were_tried_in_vain_leave_places_to_those_that_were_not() -> None:
    receivers = Receivers()
    hosts = [f"{number}" for number in range(16)]
    for sent in fill(receivers, THEM, hosts):
        receivers.ended(sent, 30.0, None)
    assert len(fill(receivers, THEM, hosts)) == 8
    assert not receivers.put_off("new", THEM, 0.0)
    for number in range(20):
        assert receivers.put_off(hosts[-1], THEM, 40.0) == (number + 1) * 30.0 / 8


async def test_callbacks_behind_very_many_silent_hosts_of_another_submitter_are_sent_at_once() -> None:
    post = Post()
    lane, other = Due(post), Due(post)
    other.callbacks = lane.callbacks
    task = asyncio.create_task(lane.callbacks.run())
    lane.end("first", WELL, 1)  # it is known to answer
    await eventually(lambda: "first-0" in lane.errors)
    for number in range(200):
        lane.end(f"silent-{number}", f"http://{number}.silent.example/done", 1)
    await eventually(lambda: not lane.due)
    other.end("well", WELL, 10)
    lane.due += [ended("us", "http://ours.example/done")._replace(model="zimg")]
    lane._reply()
    await eventually(lambda: len(other.errors) == 10 and "us" in lane.errors)
    assert post.held == MOST_TO_STRANGERS // 2
    post.given_up.set()
    await lane.callbacks.leave(10.0)
    task.cancel()
    await asyncio.wait([task])
