"""What instances tell each other of failures and of answers, as it is published."""

import asyncio
from collections.abc import AsyncIterator, Callable
from random import Random
from typing import cast

import pytest
import pytest_asyncio

from slb.addresses import AddressRules
from slb.balance.judge import ANSWERED
from slb.health.active import Store
from slb.health.service import HealthService
from tests.support.waiting import eventually
from tests.unit.health.fleet import Routes

OnNews = Callable[[str, str, int], None]


class Channel:
    """Gives everybody what anybody publishes; `texts` has all of it, but who told."""

    def __init__(self) -> None:
        self.listeners: list[OnNews] = []
        self.texts: list[tuple[str, str, int]] = []

    async def run(self, on_news: OnNews) -> None:
        self.listeners.append(on_news)
        await asyncio.Event().wait()

    async def publish(self, about: str, news: str, number: int = 0) -> None:
        path, member, _, answers = about.split(" ")
        self.texts.append((f"{path} {member} {answers}", news, number))
        for each in list(self.listeners):
            each(about, news, number)


class Instance(Routes):
    def __init__(self, channel: Channel, seed: int) -> None:
        super().__init__()
        self.members("/", 4)
        self.health = HealthService(
            self.mirror,
            self.metrics.health,
            cast("Store", None),  # nothing is checked
            channel,
            AddressRules((), lambda: ()),
            Random(seed),
            gap=0.01,
            instances=lambda: 2,
        )

    def fails(self) -> None:
        self.health.passive.failed(self.live(1), "500", self.route())

    def serves(self) -> None:
        self.health.passive.answered(self.live(1), self.route())

    @property
    def score(self) -> float:
        return self.health.passive.judge.score(self.live(1), (self.route(),))


@pytest.fixture
def channel() -> Channel:
    return Channel()


@pytest_asyncio.fixture
async def two(channel: Channel) -> AsyncIterator[tuple[Instance, Instance]]:
    made = Instance(channel, 1), Instance(channel, 2)
    tasks = [asyncio.create_task(each.health.run()) for each in made]
    await eventually(lambda: len(channel.listeners) == 2, what="both listen")
    yield made
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


async def test_answers_after_failures_are_told_until_none_of_these_is_left(
    two: tuple[Instance, Instance], channel: Channel
) -> None:
    one, other = two
    one.fails()
    await eventually(lambda: other.score == pytest.approx(1.0, abs=0.01), what="the failure is heard")
    one.serves()
    await eventually(lambda: other.score < 0.9, what="the answer is heard")
    assert other.score == pytest.approx(1.0 - ANSWERED, abs=0.01)
    for _ in range(10):
        one.serves()
    await eventually(lambda: other.score == 0.0, what="the other answers are heard")
    one.serves()
    one.fails()
    await eventually(lambda: other.score == pytest.approx(1.0, abs=0.01), what="the next failure is heard")
    assert channel.texts == [
        ("/ u1:80 0", "failing", 100),
        ("/ u1:80 1", "answering", 79),
        ("/ u1:80 10", "answering", 0),
        ("/ u1:80 1", "failing", 100),
    ]


async def test_failures_of_a_version_that_tells_of_no_answers_are_passed_over(
    two: tuple[Instance, Instance], channel: Channel
) -> None:
    for _ in range(9):
        for hears in channel.listeners:
            hears("/ u1:80 0123456789abcdef", "failing", 100)
            hears("/ u1:80 0123456789abcdef x", "failing", 100)
            hears("/ u1:80 0123456789abcdef -1", "answering", 0)
    assert [each.score for each in two] == [0.0, 0.0]
