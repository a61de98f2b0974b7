"""One attempt at a job: the call to the GPU, and where it answers that it goes on, the questions how it goes."""

import asyncio
import time
from typing import NamedTuple, Protocol
from urllib.parse import quote

from slb.backoff import asked_for
from slb.balance.upstream import LiveUpstream
from slb.errors import OVERLOADED, UPSTREAM_CONNECT, Refused
from slb.job import ROUTE, Claimed, ModelConfig
from slb.jobs.gpu_call import AnswerTooLarge, Caller, GpuRequest
from slb.jobs.verdict import Kind, Verdict, poll_verdict_of, verdict_of

_PATIENCE = 5
"""Questions in a row that may have no answer, or none that says how it goes, before the attempt has failed."""
_GONE_AFTER = 2
"""Answers in a row that there is no such job: one may be a proxy's, or of a server that has just begun."""
_ASKED_WITHIN = 30.0
"""Seconds one such question may take."""


class NotesRemote(Protocol):
    """Keeps the GPU's id of what it runs; whether the attempt is still ours."""

    async def __call__(self, job: Claimed, remote: str) -> bool: ...


class Reports(Protocol):
    """How the attempt has ended by what the GPU has told by itself; None where it has not."""

    async def __call__(self, job: Claimed) -> str | None: ...


class Hears(Protocol):
    """Is told what the GPU answers of an attempt that goes on."""

    async def __call__(self, job: Claimed, verdict: Verdict) -> None: ...


class Notes(NamedTuple):
    """Of the attempts of one model: what is kept of them, and what is known by their GPUs' reports."""

    remote: NotesRemote
    reported: Reports
    heard: Hears


async def run_attempt(
    job: Claimed,
    payload: bytes,
    upstream: LiveUpstream,
    config: ModelConfig,
    call: Caller,
    notes: Notes,
) -> Verdict:
    """Run a job at an upstream to its verdict."""
    verdict = await _asked(job, payload, upstream, config, call)
    if verdict.kind != "processing":
        return verdict
    due = asyncio.get_running_loop().time() + config.poll_interval
    if not await notes.remote(job, verdict.remote):
        return Verdict("failed", error="another instance has taken it over", runs_on=True)
    await notes.heard(job, verdict)
    verdict = await _followed(job, verdict.remote, upstream, config, call, notes, due)
    return verdict._replace(kind="failed") if verdict.kind == "unknown" else verdict


async def follow_attempt(
    job: Claimed, upstream: LiveUpstream, config: ModelConfig, call: Caller, notes: Notes
) -> Verdict:
    """Follow what an attempt before left running at an upstream, from now on; `unknown` where that does not know it
    any more."""
    now = asyncio.get_running_loop().time()
    return await _followed(job, job.remote, upstream, config, call, notes, now)


def headers_of(id_: str, token: str) -> dict[str, str]:
    """What stands on each call for a job. `X-Source` lets a GPU prefer callers of its own."""
    return {"X-Source": "dispatcher", "X-Job-Id": id_, "X-Job-Attempt": token, "Idempotency-Key": id_}


def _route_of(job: Claimed) -> str:
    return ROUTE + (job.on or job.model)


def poll_of(job: Claimed, remote: str, upstream: LiveUpstream, config: ModelConfig) -> GpuRequest | None:
    """The question to a GPU how what it knows by `remote` goes; None where it is not asked."""
    if not remote or not config.poll_endpoint_template:
        return None
    target = config.poll_endpoint_template.replace("{id}", quote(remote, safe=""))
    headers, limits = headers_of(job.id, job.token), (_ASKED_WITHIN, config.result_limit)
    return GpuRequest(upstream, "GET", target, headers, b"", *limits, config.busy_statuses, route=_route_of(job))


async def _asked(
    job: Claimed, payload: bytes, upstream: LiveUpstream, config: ModelConfig, call: Caller
) -> Verdict:
    headers = {"Content-Type": "application/json", **headers_of(job.id, job.token)}
    limits = config.max_processing_time, config.result_limit
    statuses = config.busy_statuses, config.hopeless_statuses
    request = GpuRequest(upstream, "POST", config.endpoint, headers, payload, *limits, *statuses, _route_of(job))
    try:
        answer = await call(request)
        return verdict_of(answer.status, answer.body, config, asked_for(answer.retry_after, time.time()))
    except AnswerTooLarge:
        return _too_long(request)
    except Refused as error:  # at a limit of slb's own nothing was tried
        kind: Kind = "busy" if error.reason is OVERLOADED else "failed"
        return Verdict(kind, error=str(error), runs_on=error.reason not in (OVERLOADED, UPSTREAM_CONNECT))


def _too_long(request: GpuRequest) -> Verdict:
    return Verdict("refused", error=f"its answer is longer than result_limit, {request.most} bytes")


async def _followed(
    job: Claimed,
    remote: str,
    upstream: LiveUpstream,
    config: ModelConfig,
    call: Caller,
    notes: Notes,
    due: float,
) -> Verdict:
    """Until the GPU has ended it, and has said so: when it is asked, at first when that is `due` by the loop's
    clock; or by itself, which is looked for where its answer is not the result. One that answers that it is busy
    is asked again, until `max_poll_time`. What ends in any other way may run on there."""
    request = poll_of(job, remote, upstream, config)
    loop, verdict = asyncio.get_running_loop(), Verdict("processing")
    before = verdict
    try:
        async with asyncio.timeout(config.max_poll_time):
            silent = gone = 0
            while True:
                await asyncio.sleep(due - loop.time())
                verdict = await told(request, config, call) if request is not None else verdict
                due = loop.time() + config.poll_interval
                if verdict.kind == "done":
                    return verdict
                if verdict != before:
                    await notes.heard(job, verdict)
                    before = verdict
                report = await notes.reported(job)
                if report is not None:
                    end = poll_verdict_of(200, report.encode(), config)
                    if end.kind in ("done", "failed", "refused"):
                        return end
                if verdict.kind in ("failed", "refused"):
                    return verdict
                gone = gone + 1 if verdict.kind == "unknown" else 0
                if gone >= _GONE_AFTER:
                    return verdict
                silent = silent + 1 if verdict.kind in ("silent", "unknown") else 0
                if silent >= _PATIENCE:
                    return verdict._replace(kind="failed", runs_on=True)
    except TimeoutError:
        late = f"it did not end within max_poll_time, {config.max_poll_time:g} s"
        if verdict.new_word is not None:
            late += f"; its last status was {verdict.new_word!r}, which slb does not know"
        return Verdict("failed", error=late, runs_on=True)


async def told(request: GpuRequest, config: ModelConfig, call: Caller) -> Verdict:
    """What the GPU answers to the question how it goes."""
    try:
        answer = await call(request)
    except AnswerTooLarge:  # its end, most likely
        return _too_long(request)._replace(runs_on=True)
    except Refused as error:
        return Verdict("silent", error=str(error))
    return poll_verdict_of(answer.status, answer.body, config)
