"""Another program writes what it likes under any of slb's keys: no instance ends by it, and all is well again once
they are whole."""

import re
import time
from contextlib import suppress
from random import Random
from typing import Any

import orjson
import pytest
from redis import Redis
from redis.exceptions import ResponseError

from slb.control import keys
from tests.process.dispatchers import MODEL, Dispatchers, MakeGpu
from tests.support.valkey import Valkey
from tests.support.waiting import until_found

_TIMES, _TURNS = 40, 10
"""So many changes between two looks at the instance, and so many looks."""
_TEXTS: tuple[Any, ...] = (
    *("", "<img>", "nan", "inf", "-1", "0", "1e400", "9" * 40, "true", "null", "{}", "[]", "[null]"),
    *('{"a":[', "a b", "__proto__", "x" * 5000, b"\xff\xfe", b"\x00", "9 9 9 9 1", '{"now":1}'),
    '["a","b","c","d"]',
)
_KINDS = ("hash", "zset", "set", "list", "string")
_SCORES = (0, -1, 0.5, 1e300, -1e18, float("inf"), float("-inf"), 2**53)
_KEYS = (
    *(keys.JOB_MODELS, keys.CHANGES, keys.LEASES, keys.GENERATION, keys.INSTANCES, keys.FLEET_CHANGES),
    *(keys.route_key("/jobs/flux"), keys.settings_key("/jobs/flux")),
    *("slb:{quota}:models", "slb:{jobs:flux}:counts"),
)
_CHANNELS = (
    *(keys.HEALTH_CHANNEL, keys.INSTANCES_CHANNEL, keys.JOBS_CHANNEL),
    *(keys.FLEET_ASK_CHANNEL, keys.FLEET_FRAMES_CHANNEL),
)
_LOOKS = ("/fleet", "/status", "/queue/stats", "/queue/jobs", "/admin/dlq", "/fleet/changes", "/metrics", "/models")


class Stranger:
    """Changes what is there, by `seed`."""

    def __init__(self, valkey: Valkey, seed: int) -> None:
        self._redis: Any = Redis.from_url(valkey.url)  # which reads bytes
        self._random = Random(seed)

    def change(self) -> None:
        rnd, redis = self._random, self._redis
        known = sorted(redis.keys())
        key = rnd.choice(known if known and rnd.random() < 0.8 else _KEYS)
        kind, dice = redis.type(key).decode(), rnd.random()
        with suppress(ResponseError):  # there is no such score, or the key has been damaged before
            self._change(key, kind, dice)

    def _change(self, key: str, kind: str, dice: float) -> None:
        rnd, redis = self._random, self._redis
        if dice < 0.1:
            redis.delete(key)
        elif dice < 0.2:
            redis.set(key, self._text())
        elif dice < 0.3:
            redis.delete(key)
            self._make(key, rnd.choice(_KINDS))
        elif dice < 0.35:
            redis.publish(rnd.choice(_CHANNELS), self._text())
        else:
            self._make(key, rnd.choice(_KINDS) if kind == "none" else kind)

    def _make(self, key: str, kind: str) -> None:
        """Into what is there of this kind, or anew."""
        rnd, redis = self._random, self._redis
        if kind == "hash":
            redis.hset(key, rnd.choice([*redis.hkeys(key), self._text()]), self._text())
        elif kind == "zset":
            time_like = rnd.choice((*_SCORES, time.time(), time.time() * 1000))
            redis.zadd(key, {rnd.choice([*redis.zrange(key, 0, 20), self._text()]): time_like})
        elif kind == "set":
            redis.sadd(key, self._text())
        elif kind == "list":
            redis.lpush(key, self._text())
        else:
            redis.setrange(key, rnd.randrange(60), self._text())

    def _text(self) -> Any:
        return self._random.choice(_TEXTS)


@pytest.mark.parametrize("seed", range(4))
async def test_no_instance_ends_by_what_another_program_writes(
    jobs: Dispatchers, gpu: MakeGpu, valkey: Valkey, seed: int
) -> None:
    one = await jobs.serve("--roles", "proxy,jobs,quota")
    here, stranger = await gpu(), Stranger(valkey, seed)
    registered = "/admin/register", {"model": MODEL, "endpoint": here.endpoint, "slots": 2}

    async def ask(path: str, body: Any) -> tuple[int, Any]:
        async with jobs.slb.session.post(one.api + path, json=body) as reply:
            return reply.status, orjson.loads(await reply.read())

    async def runs() -> bool:
        await ask(*registered)
        status, job = await ask("/queue/run", {"model": MODEL, "payload": "after"})
        return status == 200 and job["status"] == "completed"

    for turn in range(_TURNS):
        await ask(*registered)
        await ask("/queue/submit", {"model": MODEL, "payload": turn})
        for _ in range(_TIMES):
            stranger.change()
        for path in _LOOKS:
            status, text = await jobs.slb.get(one.api + path)
            assert status in (200, 503) or "script_failed" in text, f"{path}: {status} {text}"
    assert one.process.running()
    valkey.admin.flushall()
    await until_found(runs, 40.0, "a job runs once the data are whole")
    logged = next(jobs.slb.directory.rglob("serve-1*.log")).read_text()
    assert not re.search("task_ended|unexpected_exception|_broke|fleet_view_failed", logged), logged
