"""One attempt at a job: the call to the GPU, and where it answers that it goes on, the questions how it goes."""

import asyncio
from typing import Protocol
from urllib.parse import quote

from slb.balance.upstream import LiveUpstream
from slb.errors import OVERLOADED, UPSTREAM_CONNECT, Refused
from slb.job import Claimed, ModelConfig
from slb.jobs.gpu_call import AnswerTooLarge, Caller, GpuRequest
from slb.jobs.verdict import Kind, Verdict, verdict_of

_PATIENCE = 5
"""Questions in a row that may have no answer before the attempt has failed."""
_ASKED_WITHIN = 30.0
"""Seconds one such question may take."""


class Notes(Protocol):
    """Keeps the GPU's id of what it runs; whether the attempt is still ours."""

    async def __call__(self, job: Claimed, remote: str) -> bool: ...


class Reports(Protocol):
    """What the GPU has told by itself, of an attempt that it runs; None where it has not."""

    async def __call__(self, job: Claimed) -> str | None: ...


async def run_attempt(
    job: Claimed,
    payload: bytes,
    upstream: LiveUpstream,
    config: ModelConfig,
    call: Caller,
    note_remote: Notes,
    reported: Reports,
) -> Verdict:
    """Run a job at an upstream to its verdict."""
    verdict = await _asked(job, payload, upstream, config, call)
    if verdict.kind != "processing":
        return verdict
    due = asyncio.get_running_loop().time() + config.poll_interval
    if not await note_remote(job, verdict.remote):
        return Verdict("failed", error="another instance has taken it over")
    verdict = await _followed(job, verdict.remote, upstream, config, call, reported, due)
    return verdict._replace(kind="failed") if verdict.kind == "unknown" else verdict


async def follow_attempt(
    job: Claimed, upstream: LiveUpstream, config: ModelConfig, call: Caller, reported: Reports
) -> Verdict:
    """Follow what an attempt before left running at an upstream, from now on; `unknown` where that does not know it
    any more."""
    now = asyncio.get_running_loop().time()
    return await _followed(job, job.remote, upstream, config, call, reported, now)


def headers_of(id_: str, token: str) -> dict[str, str]:
    """What stands on each call for a job. `X-Source` lets a GPU prefer callers of its own."""
    return {"X-Source": "dispatcher", "X-Job-Id": id_, "X-Job-Attempt": token, "Idempotency-Key": id_}


async def _asked(
    job: Claimed, payload: bytes, upstream: LiveUpstream, config: ModelConfig, call: Caller
) -> Verdict:
    headers = {"Content-Type": "application/json", **headers_of(job.id, job.token)}
    limits = config.max_processing_time, config.result_limit
    try:
        return await _answered(
            GpuRequest(upstream, "POST", config.endpoint, headers, payload, *limits), config, call
        )
    except Refused as error:  # at a limit of slb's own nothing was tried
        kind: Kind = "busy" if error.reason is OVERLOADED else "failed"
        return Verdict(kind, error=str(error), runs_on=error.reason not in (OVERLOADED, UPSTREAM_CONNECT))


async def _answered(request: GpuRequest, config: ModelConfig, call: Caller, is_known: bool = False) -> Verdict:
    try:
        answer = await call(request)
    except AnswerTooLarge:
        return Verdict("refused", error=f"its answer is longer than result_limit, {request.most} bytes")
    return verdict_of(answer.status, answer.body, config, is_known)


async def _followed(
    job: Claimed,
    remote: str,
    upstream: LiveUpstream,
    config: ModelConfig,
    call: Caller,
    reported: Reports,
    due: float,
) -> Verdict:
    """Until the GPU has ended it, and has said so: when it is asked, at first when that is `due` by the loop's
    clock; or by itself, which is looked for where its answer is not the result. One that answers that it is busy
    is asked again, until `max_poll_time`."""
    target = (config.poll_endpoint_template or "").replace("{id}", quote(remote, safe=""))
    headers, limits = headers_of(job.id, job.token), (_ASKED_WITHIN, config.result_limit)
    request = GpuRequest(upstream, "GET", target, headers, b"", *limits)
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(config.max_poll_time):
            unanswered = 0
            while True:
                await asyncio.sleep(due - loop.time())
                verdict = await _told(request, config, call) if target else Verdict("processing")
                due = loop.time() + config.poll_interval
                if verdict.kind == "done":
                    return verdict
                report = await reported(job)
                if report is not None:
                    told = verdict_of(200, report.encode(), config, is_known=True)
                    if told.kind != "processing":
                        return told
                unanswered = unanswered + 1 if verdict.kind == "silent" else 0
                if unanswered >= _PATIENCE:
                    return verdict._replace(kind="failed", runs_on=True)
                if verdict.kind not in ("processing", "busy", "silent"):
                    return verdict
    except TimeoutError:
        late = f"it did not end within max_poll_time, {config.max_poll_time:g} s"
        return Verdict("failed", error=late, runs_on=True)


async def _told(request: GpuRequest, config: ModelConfig, call: Caller) -> Verdict:
    """What the GPU answers to the question how it goes."""
    try:
        return await _answered(request, config, call, is_known=True)
    except Refused as error:
        return Verdict("silent", error=str(error))
