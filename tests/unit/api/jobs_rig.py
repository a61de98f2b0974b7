"""The job dispatcher behind an API; nothing runs."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

from slb.addresses import CallbackRules
from slb.admission.gates import Gates
from slb.api.job_pages import shown
from slb.api.parts import ApiParts
from slb.control.connection import Connection
from slb.control.kept_lines import KeptLines
from slb.control.ledger import Ledger
from slb.errors import UPSTREAM_CONNECT, Refused
from slb.jobs.callbacks import Callbacks
from slb.jobs.dispatcher import Means
from slb.jobs.gpu_call import Answer as GpuAnswer
from slb.jobs.gpu_call import Caller, GpuRequest
from slb.jobs.outcomes import KIND, Outcomes
from slb.jobs.posting import Posting
from slb.jobs.runtime import JobRuntime, Runs
from slb.jobs.service import JobService
from slb.jobs.task_parts import NO_TASKS, TaskParts
from slb.observe.jobs import JobCounts
from tests.unit.api.conftest import Api, ApiMaker, Json

FLUX = "/admin/model-configs/flux"


async def no_gpu(request: GpuRequest) -> GpuAnswer:
    """What jobs meet where nothing listens."""
    raise Refused(UPSTREAM_CONNECT, f"{request.upstream.member} refuses")


def job_service(
    parts: ApiParts, gates: Gates, folder: Path, call: Caller = no_gpu, tasks: TaskParts = NO_TASKS
) -> JobService:
    """One instance's, whose GPUs are `call`."""
    rules, counts = CallbackRules((), parts.address_rules), JobCounts()
    outcomes = Outcomes(KeptLines(folder, KIND, parts.connection.url_shown))
    callbacks = Callbacks(Posting(rules), shown, (), counts, Random(1))

    runs = Runs(Means(gates, parts.mirror, call, call, counts, Random(1), outcomes), callbacks)
    runtime = JobRuntime(parts.connection, parts.mirror, "here", counts, runs, tasks=tasks)
    return JobService(runtime, parts.mirror, gates.scores_of)


@asynccontextmanager
async def api_of_jobs(
    serve: ApiMaker, connection: Connection, parts: ApiParts, folder: Path, **more: Any
) -> AsyncIterator[Api]:
    """The API with the role on, and the model `flux`, which is paused; `more`: for `serve`. Where that has tokens,
    `root` may all."""
    ledger = Ledger(connection, "here", parts.metrics, Random(1))
    service = job_service(parts, Gates(ledger, parts.mirror, parts.metrics, lambda: 1, Random(1)), folder)
    tasks = [asyncio.create_task(work) for work in (ledger.run(), service.runtime.run())]
    api = await serve(jobs=service, **more)
    assert (await api.call("PUT", FLUX, {"paused": True}, headers=as_holder("root"))).status == 200
    yield api
    await service.runtime.leave(0.0)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


def as_holder(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


async def submit(jobs: Api, **more: Json) -> Json:
    answer = await jobs.call("POST", "/queue/submit", {"model": "flux", "payload": {"prompt": "x"}, **more})
    assert answer.status == 202, answer.json
    return answer.json


async def refused(
    jobs: Api, status: int, reason: str, method: str, path: str, body: Json = None, **head: str
) -> str:
    """The detail."""
    answer = await jobs.call(method, path, body, headers=head)
    assert (answer.status, answer.json["error"]) == (status, reason), answer.json
    detail: str = answer.json["detail"]
    return detail
