"""Who has the places of callbacks: a receiver that is slow or does not answer leaves them to others."""

import asyncio
from collections import Counter
from collections.abc import Mapping
from random import Random
from typing import cast

import orjson
import pytest

from slb.control.job_replies import Pulse
from slb.control.jobs import JobLane
from slb.job import JobShown
from slb.jobs.callbacks import Callbacks
from slb.jobs.posting import MOST_AT_ONCE
from slb.jobs.receivers import MOST_TO_SILENT, MOST_TO_SLOW, SLOW, Receivers, receiver_of
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
        if url != DOWN:
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


@pytest.mark.parametrize(("took", "most"), [(None, MOST_TO_SILENT), (SLOW, MOST_TO_SLOW)])
def test_one_that_is_slow_or_silent_has_few_places_until_it_answers_soon(took: float | None, most: int) -> None:
    receivers = Receivers()
    for _ in range(most + 1):
        assert not receivers.put_off("a", 0.0)
        receivers.begins("a")
    receivers.ended("a", took)
    assert receivers.put_off("a", 0.0)
    assert not receivers.put_off("b", 0.0)
    receivers.ended("a", 0.1)
    for _ in range(most + 1):
        receivers.begins("a")
    assert not receivers.put_off("a", 0.0)


def test_those_that_are_put_off_come_again_as_places_become_free() -> None:
    """However many there are, about one is looked at for each that is sent."""
    receivers = Receivers()
    for _ in range(MOST_TO_SLOW + 1):
        receivers.begins("a")
    receivers.ended("a", 8.0)
    assert [receivers.put_off("a", 100.0) for _ in range(3)] == [0.5, 1.0, 1.5]
    assert receivers.put_off("a", 101.0) == 1.0
    assert receivers.put_off("a", 200.0) == 0.5
    assert [receivers.put_off("a", 300.0) for _ in range(10_000)][-1] == 3600.0


def test_of_very_many_that_are_silent_the_first_is_forgotten() -> None:
    receivers = Receivers()
    for number in range(1_001):
        receivers.begins(f"{number}")
        receivers.ended(f"{number}", None)
    for _ in range(MOST_TO_SILENT):
        receivers.begins("0")
        receivers.begins("1")
    assert not receivers.put_off("0", 0.0)
    assert receivers.put_off("1", 0.0)
