"""GET /queue/events over real sockets: what becomes of jobs, as it happens."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import orjson
import pytest
from structlog.testing import capture_logs

from slb.api.parts import ApiParts
from slb.control.connection import Connection
from slb.jobs.service import JobService
from tests.support.waiting import eventually, within
from tests.unit.api.conftest import Api, ApiMaker, Json
from tests.unit.api.jobs_rig import api_of_jobs


@pytest.fixture
async def jobs(serve: ApiMaker, connection: Connection, parts: ApiParts, tmp_path: Path) -> AsyncIterator[Api]:
    """The API with the role on, and the model `flux`, which is paused."""
    async with api_of_jobs(serve, connection, parts, tmp_path) as api:
        yield api


class Events:
    """What one client gets."""

    def __init__(self, reply: Any) -> None:
        self.reply = reply
        self.comments = 0

    async def next(self) -> tuple[str, str, Json] | None:
        """Id, name and data; None at the end."""
        found: dict[str, str] = {}
        async with within(20):
            async for line in self.reply.content:
                name, _, value = line.decode().rstrip("\n").partition(": ")
                if name == "" and found:
                    return found.get("id", ""), found["event"], orjson.loads(found["data"])
                if line.startswith(b":"):
                    self.comments += 1
                elif name:
                    found[name] = value
        assert not found, "half an event"
        return None


@asynccontextmanager
async def following(jobs: Api, query: str, **headers: str) -> AsyncIterator[Events]:
    url = f"http://{jobs.host}:{jobs.port}/queue/events{query}"
    async with jobs.client.session.get(url, headers=headers) as reply:
        assert reply.status == 200, await reply.read()
        assert reply.content_type == "text/event-stream"
        yield Events(reply)


async def submit(jobs: Api, id_: str) -> None:
    body = {"model": "flux", "payload": 1, "job_id": id_, "metadata": [7]}
    assert (await jobs.call("POST", "/queue/submit", body)).status == 202


async def test_a_job_is_followed_from_how_it_stands_to_its_end(jobs: Api) -> None:
    for id_ in ("zero", "one"):
        await submit(jobs, id_)
    async with following(jobs, "?job_id=one") as events:
        id_, name, job = await events.next() or ("", "", {})
        assert (id_, name) == ("0", "queued")
        assert (job["job_id"], job["status"], job["position"], job["metadata"]) == ("one", "queued", 1, [7])
        for each in ("zero", "one"):
            await jobs.call("DELETE", f"/queue/jobs/{each}")
        id_, name, job = await events.next() or ("", "", {})
        assert (id_, name, job["job_id"]) == ("1", "cancelled", "one")
        assert job == (await jobs.call("GET", "/queue/jobs/one")).json
        assert await events.next() is None


async def test_a_job_that_has_ended_is_one_event_and_for_who_has_that_none(jobs: Api) -> None:
    await submit(jobs, "one")
    await jobs.call("DELETE", "/queue/jobs/one")
    async with following(jobs, "?job_id=one&model=flux") as events:
        assert (await events.next() or ("", ""))[1] == "cancelled"
        assert await events.next() is None
    again = await jobs.call("GET", "/queue/events?job_id=one", headers={"Last-Event-ID": "1"})
    assert (again.status, again.body) == (204, b"")


async def test_who_asks_again_is_not_told_what_it_has(jobs: Api) -> None:
    await submit(jobs, "one")
    async with following(jobs, "?job_id=one", **{"Last-Event-ID": "0"}) as events:
        await jobs.call("DELETE", "/queue/jobs/one")
        assert (await events.next() or ("", ""))[1] == "cancelled"


async def test_all_jobs_of_a_model_are_followed_from_now_on(jobs: Api) -> None:
    await submit(jobs, "before")
    async with following(jobs, "?model=flux") as events:
        await submit(jobs, "one")
        await jobs.call("DELETE", "/queue/jobs/before")
        await jobs.call("DELETE", "/queue/jobs/one")
        told = [await events.next() or ("", "", {}) for _ in range(3)]
    assert [(job["job_id"], name) for _, name, job in told] == [
        ("one", "queued"),
        ("before", "cancelled"),
        ("one", "cancelled"),
    ]


async def test_what_was_missed_while_the_subscription_was_cut_is_made_good(jobs: Api) -> None:
    await submit(jobs, "one")
    async with following(jobs, "?job_id=one") as one, following(jobs, "?model=flux") as every:
        assert (await one.next() or ("", ""))[1] == "queued"
        await submit(jobs, "two")
        assert (await every.next() or ("", ""))[1] == "queued"
        redis = jobs.redis
        assert await redis.client_kill_filter(_type="pubsub") >= 1
        for id_ in ("one", "two"):
            await jobs.call("DELETE", f"/queue/jobs/{id_}")
        assert (await one.next() or ("", ""))[1] == "cancelled"
        told: list[tuple[str, Json]] = []  # of "one" too, where that came by the new subscription
        while not {"missed", "two"} <= {name if name == "missed" else job["job_id"] for name, job in told}:
            event = await every.next()
            assert event is not None
            told.append(event[1:])
        assert [name for name, _ in told if name == "missed"] == ["missed"]
        assert [name for name, job in told if job.get("job_id") == "two"] == ["cancelled"]


async def test_one_subscription_serves_all_who_follow_and_ends_with_the_last(jobs: Api) -> None:
    await submit(jobs, "one")

    async def subscribers() -> int:
        return int(dict(await jobs.redis.pubsub_numsub("slb:jobs:events"))["slb:jobs:events"])

    assert await subscribers() == 0
    async with following(jobs, "?job_id=one") as one, following(jobs, "?model=flux") as other:
        await one.next()
        assert await subscribers() == 1
        await jobs.call("DELETE", "/queue/jobs/one")
        assert await other.next() is not None
    async with within(20):
        while await subscribers():
            await submit(jobs, "one-more")  # what is written shows that the client has left
            await jobs.call("DELETE", "/queue/jobs/one-more")
            await asyncio.sleep(0.01)


async def test_one_who_reads_nothing_is_dropped_and_the_others_are_not(jobs: Api) -> None:
    with socket.socket() as slow, capture_logs() as logs:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.connect((jobs.host, jobs.port))
        slow.send(b"GET /queue/events?model=flux HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        slow.setblocking(False)
        assert await asyncio.get_running_loop().sock_recv(slow, 12) == b"HTTP/1.1 200"
        async with following(jobs, "?model=flux") as other:
            count = 0
            while not (dropped := [each for each in logs if each["event"] == "job_events_dropped"]):
                assert count < 5000
                ids = range(count, count + 50)
                many = [{"model": "flux", "payload": 1, "metadata": "x" * 8000, "job_id": f"{id_}"} for id_ in ids]
                assert (await jobs.call("POST", "/queue/submit-many", many)).status == 202
                count += len(many)
                for _ in many:
                    assert await other.next() is not None
        assert dropped[0]["events"] * 8000 < 1_000_000
        async with within(20):
            with suppress(ConnectionError):
                while await asyncio.get_running_loop().sock_recv(slow, 1 << 16):
                    pass  # what the system had taken already


@pytest.mark.parametrize(
    ("query", "status", "reason"),
    [
        ("", 400, "bad_request"),
        ("?job_id=none", 404, "unknown_job"),
        ("?model=none", 404, "unknown_model"),
        ("?job_id=one&model=none", 404, "unknown_model"),
    ],
)
async def test_what_is_not_there_is_refused_by_name(jobs: Api, query: str, status: int, reason: str) -> None:
    await submit(jobs, "one")
    answer = await jobs.call("GET", f"/queue/events{query}")
    assert (answer.status, answer.json["error"]) == (status, reason)


async def test_where_nothing_happens_a_comment_comes_now_and_then(
    jobs: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("slb.api.job_events._SILENCE", 0.02)
    await submit(jobs, "one")
    async with following(jobs, "?job_id=one") as events:
        await events.next()
        asked = asyncio.create_task(events.next())
        await eventually(lambda: events.comments >= 2)
        await jobs.call("DELETE", "/queue/jobs/one")
        assert (await asked or ("", ""))[1] == "cancelled"


async def test_what_no_message_told_of_is_read_again(jobs: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slb.jobs.events._PERIOD", 0.02)
    await submit(jobs, "one")
    await submit(jobs, "two")
    async with following(jobs, "?job_id=one") as one, following(jobs, "?model=flux") as every:
        await one.next()
        await submit(jobs, "three")
        await every.next()
        await jobs.redis.execute_command("ACL", "SETUSER", "default", "-publish")
        for id_ in ("one", "three"):
            await jobs.call("DELETE", f"/queue/jobs/{id_}")
        assert (await one.next() or ("", ""))[1] == "cancelled"
        assert (await every.next() or ("", "", {}))[2]["job_id"] == "three"
        await jobs.redis.execute_command("ACL", "SETUSER", "default", "+publish")


async def test_head_has_no_events(jobs: Api) -> None:
    await submit(jobs, "one")
    answer = await jobs.call("HEAD", "/queue/events?job_id=one")
    assert (answer.status, answer.body) == (200, b"")


async def test_streams_end_when_the_instance_does(jobs: Api) -> None:
    await submit(jobs, "one")
    async with following(jobs, "?job_id=one") as events:
        await events.next()
        assert isinstance(jobs.parts.jobs, JobService)
        await jobs.parts.jobs.runtime.leave(0.0)
        assert await events.next() is None
    assert (await jobs.call("GET", "/queue/events?job_id=one")).json["error"] == "draining"
