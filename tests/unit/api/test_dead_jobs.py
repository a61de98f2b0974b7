"""The dead-letter queue as its callers meet it. Jobs die by a lane of the tests' own, in place of a dispatcher."""

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from slb.api.parts import ApiParts
from slb.control.connection import Connection
from slb.control.jobs import JobLane
from slb.job import Submission
from tests.unit.api.conftest import Api, ApiMaker
from tests.unit.api.jobs_rig import api_of_jobs

AT = "10.0.0.1:80"


@pytest.fixture
async def jobs(serve: ApiMaker, connection: Connection, parts: ApiParts, tmp_path: Path) -> AsyncIterator[Api]:
    """The API with the role on, and the models `flux`, `a/b` and `empty`, which are paused."""
    async with api_of_jobs(serve, connection, parts, tmp_path) as api:
        for model in ("a/b", "empty"):
            assert (await api.call("PUT", f"/admin/model-configs/{model}", {"paused": True})).status == 200
        yield api


@asynccontextmanager
async def lane_of(connection: Connection, model: str) -> AsyncIterator[JobLane]:
    lane = JobLane(connection, model, secrets.token_hex(4), lambda: (), lambda pulse: None)
    task = asyncio.create_task(lane.run())
    yield lane
    task.cancel()
    await asyncio.wait([task])


async def bury(connection: Connection, model: str, ids: list[str], error: str = "out of memory") -> None:
    """Jobs that were given up for that error."""
    async with lane_of(connection, model) as lane:
        await asyncio.gather(
            *(lane.submit(Submission(model, id_, "normal", " " * 32, b'{"payload":1}', 0, False)) for id_ in ids)
        )
        claimed = await asyncio.gather(*(lane.claim(AT) for _ in ids))
        ended = await asyncio.gather(*(lane.finish(job, "give_up", error) for job in claimed if job is not None))
        assert ended == [True] * len(ids)


async def pages(jobs: Api, query: str = "") -> list[list[str]]:
    """The ids on each page, one page after another."""
    found: list[list[str]] = []
    cursor = ""
    while True:
        answer = await jobs.call("GET", f"/admin/dlq?{query}{cursor}")
        assert answer.status == 200, answer.json
        found.append([each["job_id"] for each in answer.json["jobs"]])
        if answer.json["cursor"] is None:
            return found
        cursor = f"&cursor={answer.json['cursor']}"


async def test_without_a_model_the_dead_jobs_of_all_are_listed_page_by_page(
    jobs: Api, connection: Connection
) -> None:
    assert await pages(jobs) == [[]]
    first, second = [[f"{name}{number:03}" for number in range(150)] for name in ("x", "y")]
    await bury(connection, "flux", second)
    await bury(connection, "a/b", first)
    one, other = await pages(jobs)
    assert (len(one), len(other)) == (200, 100)
    assert [sorted(one[:150]), sorted(one[150:] + other)] == [first, second]
    assert sorted((await pages(jobs, "model=flux"))[0]) == second


async def test_a_page_that_ends_with_a_model_goes_on_at_the_next(jobs: Api, connection: Connection) -> None:
    await bury(connection, "a/b", [f"x{number:03}" for number in range(200)])
    await bury(connection, "flux", ["y"])
    one, other = await pages(jobs)
    assert (len(one), other) == (200, ["y"])


async def test_of_all_models_those_with_an_error_are_listed_and_begin_again(
    jobs: Api, connection: Connection
) -> None:
    await bury(connection, "a/b", ["x1"])
    await bury(connection, "a/b", ["x2"], "no such layer")
    await bury(connection, "flux", ["y1"])
    assert await pages(jobs, "error=MEMORY") == [["x1", "y1"]]
    assert (await jobs.call("POST", "/admin/dlq/retry-all?error=memory")).json == {"retried": 2}
    assert await pages(jobs) == [["x2"]]
    assert (await jobs.call("POST", "/admin/dlq/retry-all")).json == {"retried": 1}
    assert await pages(jobs) == [[]]
    for id_ in ("x1", "x2", "y1"):
        assert (await jobs.call("GET", f"/queue/jobs/{id_}")).json["status"] == "queued"


async def test_dead_jobs_of_one_model_begin_again_alone(jobs: Api, connection: Connection) -> None:
    await bury(connection, "a/b", ["x"])
    await bury(connection, "flux", ["y"])
    assert (await jobs.call("POST", "/admin/dlq/retry-all?model=flux")).json == {"retried": 1}
    assert await pages(jobs) == [["x"]]


async def test_what_becomes_of_dead_jobs_is_noted(jobs: Api, connection: Connection) -> None:
    await bury(connection, "a/b", ["x1", "x2"])
    await bury(connection, "flux", ["y1", "y2"])
    jobs.metrics.changes.take(100)
    await jobs.call("POST", "/admin/dlq/x1/retry?model=a/b")
    await jobs.call("DELETE", "/admin/dlq/x2?model=a/b")
    await jobs.call("POST", "/admin/dlq/retry-all?model=flux")
    noted = [(each.what, each.subject, each.detail) for each in jobs.metrics.changes.take(100)]
    assert noted == [("job_retried", "x1", "a/b"), ("job_removed", "x2", "a/b"), ("job_retried", "2 jobs", "flux")]


@pytest.mark.parametrize("query", ["cursor=5", "cursor=x:flux", "cursor=5:", "model=flux&cursor=5:flux"])
async def test_a_cursor_that_slb_did_not_give_is_refused(jobs: Api, query: str) -> None:
    answer = await jobs.call("GET", f"/admin/dlq?{query}")
    assert (answer.status, answer.json["error"]) == (400, "bad_request")


@pytest.mark.parametrize(("method", "path"), [("GET", "/admin/dlq"), ("POST", "/admin/dlq/retry-all")])
async def test_a_model_that_is_named_has_to_be_known(jobs: Api, method: str, path: str) -> None:
    answer = await jobs.call(method, f"{path}?model=none")
    assert (answer.status, answer.json["error"]) == (404, "unknown_model")
