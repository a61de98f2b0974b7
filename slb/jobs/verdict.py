"""What a GPU's answer means for the job, and what then becomes of the job. Pure."""

from typing import Any, Literal, NamedTuple

import orjson

from slb.job import ModelConfig

Kind = Literal["done", "processing", "busy", "failed", "hopeless", "refused", "unknown", "silent"]

_BUSY = frozenset({429, 503})
_PASSING = frozenset({408, 425})
"""Statuses below 500 that speak of the moment, and not of the request."""
_RUNS = frozenset({"processing", "queued", "pending", "running", "in_progress"})
_HAS_FAILED = frozenset({"failed", "error"})
_HAS_RESULT = frozenset({"success", "completed", "done"})
_IDS = ("job_id", "id")
_NOT_SYNC = "it answers that it processes the job, and model_type is sync: set async, and poll_endpoint_template"
NO_ID = "-"
"""Of a GPU that gives none, for it is never asked."""
_STEPS = (".", "..")
"""As a segment of a path they would ask for something else."""
_LONGEST_ID = 256
"""Characters: it stands in Redis, and in the path of each poll."""
_LONGEST_ERROR = 500
_JITTER = 0.1


class Verdict(NamedTuple):
    """`done`: `result` is JSON. `processing`: the GPU knows it by `remote`. `busy`: it was not tried, or it has no
    time to say how it goes. `failed`: another attempt may succeed. `hopeless`: no other would, since the payload is
    at fault. `refused`: no other would, for what the model answers. `unknown`: it was asked how a job goes that it
    does not know, after a restart maybe. `silent`: it was asked that, and has not said. `runs_on`: the GPU may
    still run it."""

    kind: Kind
    result: bytes = b""
    error: str = ""
    remote: str = ""
    runs_on: bool = False


MoveName = Literal["complete", "fail", "retry", "fall", "give_up", "back"]


class Move(NamedTuple):
    """An attempt's end, by `lua/jobs_attempts.lua`; `seconds` until a retry; `on`: the model to go on at."""

    name: MoveName
    text: bytes
    seconds: float = 0.0
    on: str = ""


def verdict_of(status: int, body: bytes, config: ModelConfig, is_known: bool = False) -> Verdict:
    """What a GPU answered to a job; or, where its id there `is_known`, to the question how it goes."""
    if status in _BUSY:
        return Verdict("busy", error=f"status {status}")
    if not 200 <= status < 300:
        is_refused = 400 <= status < 500 and status not in _PASSING
        if is_known:  # what is broken there says nothing of the job
            kind: Kind = "unknown" if is_refused else "silent" if status >= 500 else "failed"
        else:
            kind = "hopeless" if is_refused else "failed"
        return Verdict(kind, error=_error(f"status {status}", body))
    try:
        answer = orjson.loads(body)
    except orjson.JSONDecodeError:
        return Verdict("failed", error=_error("its answer is not JSON", body))
    state = answer.get("status") if isinstance(answer, dict) else None
    if not isinstance(state, str):
        return Verdict("done", result=body)
    if state in _HAS_FAILED:
        return Verdict("failed", error=_error_in(answer))
    if state in _RUNS:
        return Verdict("processing") if is_known else _running(answer, config)
    if state in _HAS_RESULT and "result" in answer:
        return _result(answer["result"])
    return Verdict("done", result=body)


def move_of(verdict: Verdict, config: ModelConfig, failures: int, jitter: float, fallback: str = "") -> Move:
    """What becomes of the job after a verdict other than `processing`. `failures`: attempts that failed before;
    `jitter`: from -1 to 1; `fallback`: the model at which it may go on."""
    error = verdict.error.encode()
    if verdict.kind == "done":
        return Move("complete", verdict.result)
    if verdict.kind == "busy":
        return Move("back", error)
    if verdict.kind == "hopeless":
        return Move("fail", error)
    if verdict.kind == "refused" or failures >= config.max_retries:
        return Move("fall", error, on=fallback) if fallback else Move("give_up", error)
    return Move("retry", error, retry_delay(config, failures, jitter))


def retry_delay(config: ModelConfig, failures: int, jitter: float) -> float:
    """Seconds before the next attempt, where so many have failed before this one."""
    delay = min(config.retry_backoff * 2.0 ** min(failures, 60), config.longest_backoff)
    return delay * (1 + _JITTER * jitter)


def _result(result: Any) -> Verdict:
    try:
        return Verdict("done", result=orjson.dumps(result))
    except orjson.JSONEncodeError as error:  # it is nested too deep to be written again
        return Verdict("refused", error=f"its result cannot be kept: {error}")


def _running(answer: dict[str, Any], config: ModelConfig) -> Verdict:
    if config.model_type == "sync":
        return Verdict("refused", error=_NOT_SYNC)
    fields = (config.id_field,) if config.id_field else _IDS
    given = (answer.get(field) for field in fields)
    remote = next((str(each) for each in given if isinstance(each, str | int) and each != ""), "")
    if remote in _STEPS or len(remote) > _LONGEST_ID:
        why = f"its id of the job is {remote[:_LONGEST_ID]!r}: no '.' or '..', and {_LONGEST_ID} characters at most"
        return Verdict("refused", error=why)
    if not remote and not config.poll_endpoint_template:  # the GPU reports by itself
        return Verdict("processing", remote=NO_ID)
    if not remote:
        return Verdict("refused", error=f"it processes the job, and its answer has no {' or '.join(fields)}")
    return Verdict("processing", remote=remote)


def _error_in(answer: dict[str, Any]) -> str:
    error = answer.get("error") or answer.get("detail") or answer.get("message") or "it answered that it failed"
    try:
        return (error if isinstance(error, str) else orjson.dumps(error).decode())[:_LONGEST_ERROR]
    except orjson.JSONEncodeError as fault:  # it is nested too deep to be written again
        return f"it answered that it failed, with an error that cannot be kept: {fault}"


def _error(what: str, body: bytes) -> str:
    shown = body[:_LONGEST_ERROR].decode(errors="replace").strip()
    return f"{what}: {shown}" if shown else what
