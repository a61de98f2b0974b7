"""What a GPU's answer means for the job, and what then becomes of the job. Pure."""

import json
from typing import Any, Literal, NamedTuple

import orjson

from slb.job import LONG_INTEGER, Claimed, ModelConfig

Kind = Literal["done", "processing", "busy", "failed", "hopeless", "refused", "unknown", "silent"]


def _words(*lines: str) -> frozenset[str]:
    return frozenset(word for line in lines for word in line.split())


_GONE = frozenset({404, 410})
_ACCEPTED = 202
_RUNS = _words("processing queued pending running in_progress in_queue starting started loading booting retry")
_HAS_FAILED = _words(
    "failed failure error errored canceled cancelled aborted timed_out timeout terminated expired revoked",
    "init_failure internal_failure",
)
_HAS_RESULT = _words("success succeeded completed complete done finished ok")
"""Words of `status` at RunPod, Replicate, Cog, Modal, fal and Celery, in lower case and with `_` between them."""
_BETWEEN_WORDS = str.maketrans("- ", "__")
_IDS = ("job_id", "id")
_NOT_SYNC = "it answers that it processes the job, and model_type is sync: set async, and poll_endpoint_template"
NO_ID = "-"
"""Of a GPU that gives none, for it is never asked."""
_STEPS = (".", "..")
"""As a segment of a path they would ask for something else."""
_LONGEST_ID = 256
"""Characters: it stands in Redis, and in the path of each poll."""
_LONGEST_ERROR = 500
_LONGEST_WORD = 64
_BEHIND = 2
"""Times as long as its GPU is left alone a job waits that it was busy for."""
MOST_PROGRESS = 8192
"""Bytes that are kept of how far a job has come: what an event has of a result."""
_JITTER = 0.1
LONGEST_ASKED = 3600.0
"""Seconds for which Retry-After is heeded."""


class Verdict(NamedTuple):
    """`done`: `result` is JSON. `processing`: the GPU knows it by `remote`. `busy`: it was not tried, or it has no
    time to say how it goes. `failed`: another attempt may succeed. `hopeless`: no other would, since the payload is
    at fault. `refused`: no other would, for what the model answers. `unknown`: it was asked how a job goes that it
    does not know, after a restart maybe. `silent`: it was asked that, and has not said. `runs_on`: the GPU may
    still run it. `is_its_own`: another GPU may take the same payload. `progress`: JSON, of what goes on;
    `new_word`: its status, where slb does not know it; empty where it has none. `asks`: of a GPU that has said
    that it is busy, the seconds of its Retry-After, 0 for none."""

    kind: Kind
    result: bytes = b""
    error: str = ""
    remote: str = ""
    runs_on: bool = False
    is_its_own: bool = False
    progress: bytes = b""
    new_word: str | None = None
    asks: float | None = None


MoveName = Literal["complete", "fail", "retry", "fall", "give_up", "back", "busy", "put_off"]


NOTHING_TRIED = frozenset({"back", "busy", "put_off"})


class Move(NamedTuple):
    """An attempt's end, by `lua/jobs_attempts.lua`; `seconds` until a retry; `on`: the model to go on at."""

    name: MoveName
    text: bytes
    seconds: float = 0.0
    on: str = ""


def verdict_of(status: int, body: bytes, config: ModelConfig, asks: float = 0.0) -> Verdict:
    """What a GPU answered to a job; `asks`: the seconds of its Retry-After."""
    if status in config.busy_statuses:
        return Verdict("busy", error=_error(f"status {status}", body), asks=min(asks, LONGEST_ASKED))
    if status in config.hopeless_statuses:
        return Verdict("hopeless", error=_error(f"status {status}", body))
    if not 200 <= status < 300:
        return Verdict("failed", error=_error(f"status {status}", body), is_its_own=status < 500)
    try:
        answer = orjson.loads(body)
    except orjson.JSONDecodeError:
        return Verdict("failed", error=_error("its answer is not JSON", body))
    told = told_by(answer, body)
    if told.kind != "processing":
        return told
    is_async = config.model_type == "async"
    if _word_of(answer) in _RUNS or (is_async and (told.new_word or status == _ACCEPTED)):
        return _running(answer, config, told)
    return Verdict("done", result=body)


def poll_verdict_of(status: int, body: bytes, config: ModelConfig) -> Verdict:
    """What a GPU answered to the question how a job goes. Only its own word ends the job: what else may stand in
    the way of the answer says nothing of it."""
    if status in config.busy_statuses:
        return Verdict("busy", error=f"status {status}")
    if not 200 <= status < 300:
        return Verdict("unknown" if status in _GONE else "silent", error=_error(f"status {status}", body))
    try:
        return told_by(orjson.loads(body), body)
    except orjson.JSONDecodeError:
        kind: Kind = "processing" if status == _ACCEPTED else "silent"
        return Verdict(kind, error=_error("its answer is not JSON", body))


def told_by(answer: Any, written: bytes) -> Verdict:
    """What a GPU says of a job that it runs: only with the words for it has the job ended. `written`: the answer as
    it came."""
    word = _word_of(answer)
    if word in _HAS_FAILED:
        return Verdict("failed", error=_error_in(answer))
    if word in _HAS_RESULT:
        return _result(answer["result"], written) if "result" in answer else Verdict("done", result=written)
    new_word = None if word in _RUNS else word[:_LONGEST_WORD]
    return Verdict("processing", progress=_progress_in(answer), new_word=new_word)


def move_of(
    verdict: Verdict, config: ModelConfig, job: Claimed, jitter: float, fallback: str = "", left_alone: float = 0.0
) -> Move:
    """What becomes of `job` after a verdict other than `processing`. `jitter`: from -1 to 1; `fallback`: the model
    at which it may go on; `left_alone`: seconds for which its GPU is not asked for a slot."""
    error, failures = verdict.error.encode(), job.failures
    if verdict.kind == "done":
        return Move("complete", verdict.result)
    if verdict.kind == "busy" and verdict.asks is None:
        return Move("back", error)
    if verdict.kind == "busy" and job.busy < config.max_busy_answers:
        return _set_aside(verdict, config, job.busy, jitter, left_alone)
    if verdict.kind == "busy":
        error = f"GPUs were busy for it {job.busy} times while they took others: ".encode() + error
    if verdict.kind == "hopeless":
        return Move("fail", error)
    if verdict.kind in ("busy", "refused") or failures >= config.max_retries:
        return Move("fall", error, on=fallback) if fallback else Move("give_up", error)
    return Move("retry", error, retry_delay(config, failures, jitter))


def _set_aside(verdict: Verdict, config: ModelConfig, busy: int, jitter: float, left_alone: float) -> Move:
    """Another job is tried first when its GPU is asked again: then it is known which of the two it was."""
    asks = verdict.asks or 0.0
    wait = max(asks, retry_delay(config, busy, jitter), _BEHIND * left_alone)
    return Move("put_off" if asks or busy else "busy", verdict.error.encode(), wait)


def retry_delay(config: ModelConfig, failures: int, jitter: float) -> float:
    """Seconds before the next attempt, where so many have failed before this one."""
    delay = min(config.retry_backoff * 2.0 ** min(failures, 60), config.longest_backoff)
    return delay * (1 + _JITTER * jitter)


def _result(result: Any, written: bytes) -> Verdict:
    try:
        if LONG_INTEGER.search(written):  # orjson reads those of more than 64 bits as floats
            exact = json.loads(written)["result"]
            return Verdict("done", result=json.dumps(exact, separators=(",", ":"), ensure_ascii=False).encode())
        return Verdict("done", result=orjson.dumps(result))
    except (orjson.JSONEncodeError, RecursionError) as error:  # it is nested too deep to be written again
        return Verdict("refused", error=f"its result cannot be kept: {error}")


def _word_of(answer: Any) -> str:
    """Its status in one form; empty where it has none."""
    word = answer.get("status") if isinstance(answer, dict) else None
    return word.strip().lower().translate(_BETWEEN_WORDS) if isinstance(word, str) else ""


def _progress_in(answer: Any) -> bytes:
    """How far it has come, and what it has made so far; without the latter where that is too much, and empty where
    there is neither."""
    if not isinstance(answer, dict):
        return b""
    output = answer.get("output") if answer.get("result") is None else answer["result"]
    progress = {"progress": answer.get("progress"), "output": output}
    told = {name: value for name, value in progress.items() if value is not None}
    for kept in (told, {name: value for name, value in told.items() if name == "progress"}):
        try:
            written = orjson.dumps(kept) if kept else b""
        except orjson.JSONEncodeError:  # it is nested too deep to be written again
            continue
        if len(written) <= MOST_PROGRESS:
            return written
    return b""


def _running(answer: Any, config: ModelConfig, told: Verdict) -> Verdict:
    if config.model_type == "sync":
        return Verdict("refused", error=_NOT_SYNC)
    fields = (config.id_field,) if config.id_field else _IDS
    given = (answer.get(field) for field in fields) if isinstance(answer, dict) else ()
    remote = next((str(each) for each in given if isinstance(each, str | int) and each != ""), "")
    if remote in _STEPS or len(remote) > _LONGEST_ID:
        why = f"its id of the job is {remote[:_LONGEST_ID]!r}: no '.' or '..', and {_LONGEST_ID} characters at most"
        return Verdict("refused", error=why)
    if not remote and not config.poll_endpoint_template:  # the GPU reports by itself
        return told._replace(remote=NO_ID)
    if not remote:
        word = f", by its status {told.new_word!r}" if told.new_word else ""
        return Verdict("refused", error=f"it processes the job{word}, and its answer has no {' or '.join(fields)}")
    return told._replace(remote=remote)


def _error_in(answer: dict[str, Any]) -> str:
    error = answer.get("error") or answer.get("detail") or answer.get("message") or "it answered that it failed"
    try:
        return (error if isinstance(error, str) else orjson.dumps(error).decode())[:_LONGEST_ERROR]
    except orjson.JSONEncodeError as fault:  # it is nested too deep to be written again
        return f"it answered that it failed, with an error that cannot be kept: {fault}"


def _error(what: str, body: bytes) -> str:
    shown = body[:_LONGEST_ERROR].decode(errors="replace").strip()
    return f"{what}: {shown}" if shown else what
