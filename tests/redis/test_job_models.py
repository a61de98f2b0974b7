"""What is set on models, read from a Redis that any program may write to."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from slb.control import keys
from slb.control.connection import Connection
from slb.control.job_models import JobModels
from slb.errors import RedisUnavailable
from slb.observe.metrics import Metrics
from tests.support.valkey import Valkey

STRANGE: tuple[Any, ...] = ("", "-x", "a b", "../up", "<b>", "x" * 129, b"\xff\xfe", "\x00", "ä")


@pytest.fixture
async def models(valkey: Valkey) -> AsyncIterator[JobModels]:
    connection = Connection(valkey.url, Metrics())
    yield JobModels(connection)
    await connection.aclose()


class Here(JobModels):
    """One instance's."""

    def __init__(self, valkey: Valkey) -> None:
        self.connection = Connection(valkey.url, Metrics())
        self.valkey = valkey.admin
        super().__init__(self.connection)


Begin = Callable[[], Here]


@pytest.fixture
async def begin_models(valkey: Valkey) -> AsyncIterator[Begin]:
    made: list[Here] = []

    def make() -> Here:
        made.append(Here(valkey))
        return made[-1]

    yield make
    for each in made:
        await each.connection.aclose()


async def test_what_is_no_model_is_left_out(models: JobModels, valkey: Valkey) -> None:
    await models.put("flux", {"max_retries": 1})
    for name in STRANGE:
        valkey.admin.hset(keys.JOB_MODELS, name, "{}")
    assert await models.all() == {"flux": '{"max_retries":1}'}


async def test_what_is_too_large_is_not_read(models: JobModels, valkey: Valkey) -> None:
    await models.put("flux", {})
    valkey.admin.hset(keys.JOB_MODELS, "large", "x" * (5 << 20))
    sent = valkey.admin.info("stats")["total_net_output_bytes"]
    with pytest.raises(RedisUnavailable, match="slb:jobs:models has more than 4 MiB"):
        await models.all()
    assert valkey.admin.info("stats")["total_net_output_bytes"] - sent < 1 << 20
    assert await models.delete("large")
    assert list(await models.all()) == ["flux"]


async def test_what_redis_has_lost_is_written_back_and_what_was_deleted_is_not(begin_models: Begin) -> None:
    one, other = begin_models(), begin_models()
    for name in ("flux", "old"):
        await one.put(name, {"paused": True})
    both = dict.fromkeys(("flux", "old"), '{"paused":true}')
    assert [await each.all() for each in (one, other)] == [both, both]
    await other.delete("old")
    assert list(await one.all()) == ["flux"]
    assert list(await other.all()) == ["flux"]
    one.valkey.flushall()
    fresh = begin_models()  # it knows nothing
    await fresh.put("new", {})
    assert await other.all() == {"flux": '{"paused":true}', "new": "{}"}
    assert [await each.all() for each in (one, fresh)] == [await other.all()] * 2
