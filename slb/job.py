"""The nouns of the job dispatcher: what may be set on a model, what is submitted, what a job is shown as. No
I/O."""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any, Literal, NamedTuple
from urllib.parse import unquote

import orjson
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from slb.errors import InvalidName
from slb.names import normal_path, seconds
from slb.quotas import checked_model
from slb.setting_types import LONGEST_DURATION, PrioritiesSetting

JobState = Literal[
    "buffered", "queued", "retrying", "processing", "completed", "failed", "cancelled", "dead_lettered"
]
"""`lua/jobs_state.lua` has the moves between them."""

ENDED: frozenset[str] = frozenset({"completed", "failed", "cancelled", "dead_lettered"})

ROUTE = "/jobs/"
"""Behind it, the model: the route whose upstreams run its jobs."""

CLASS = "jobs"
"""The class in which jobs wait for slots."""

MOST_PAYLOAD = 1 << 20
"""Bytes of a job's payload, and of its result: both stand in Redis, and pass its one thread."""

MOST_KEPT = MOST_PAYLOAD + (64 << 10)
"""Bytes of all that is kept of a job as it was submitted."""

LONG_INTEGER = re.compile(rb"[\[:,][ \t\r\n]*+-?[0-9]{19}")
"""In JSON, one that may have more than 64 bits."""

_CLASSES = (("high", 8), ("normal", 1))


def _seconds(value: Any) -> Any:
    return seconds(value) if isinstance(value, str) else value


Seconds = Annotated[float, BeforeValidator(_seconds), Field(gt=0, le=LONGEST_DURATION)]
"""A number of seconds, or a text like `250ms` or `2m`."""


ModelId = Annotated[str, AfterValidator(checked_model)]

MOST_FALLBACKS = 8

Statuses = Annotated[tuple[Annotated[int, Field(ge=400, le=599)], ...], Field(max_length=32)]
"""Of HTTP."""


class ModelConfig(BaseModel):
    """What is set on a model. Field names and the first six defaults are those that users
    of GPU dispatchers know."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    model_type: Literal["sync", "async"] = "sync"
    """`sync`: the GPU's answer is the result. `async`: it may answer `processing`, and is asked again."""
    poll_endpoint_template: Annotated[str, Field(max_length=2048, pattern=r'^/[!-"$-~]*$')] | None = None
    """Where an `async` model is asked how its job goes; `{id}` is the id it gave."""
    cancel_endpoint_template: Annotated[str, Field(max_length=2048, pattern=r'^/[!-"$-~]*$')] | None = None
    """Where an `async` model is notified by a POST that a job was cancelled; `{id}` is the id it gave."""
    id_field: Annotated[str, Field(min_length=1, max_length=128)] | None = None
    """The field of the GPU's answer that holds that id; `job_id` or `id` unless set."""
    poll_interval: Seconds = 2.0
    """How long between two such questions."""
    max_poll_time: Seconds = 600.0
    """How long they go on before the attempt has failed."""
    max_retries: Annotated[int, Field(ge=0, le=10_000)] = 50
    """Attempts after the first one that failed; then the job is dead-lettered."""
    retry_backoff: Seconds = 1.0
    """How long the first retry waits; each one after it twice as long, up to `longest_backoff`, 10 % more or
    less."""
    longest_backoff: Seconds = 30.0
    """The longest wait before a retry."""
    max_processing_time: Seconds = 600.0
    """How long one call to the GPU may take before the attempt has failed."""
    health_endpoint: Annotated[str, Field(max_length=2048, pattern=r'^/[!-"$-~]*$')] | None = None
    """Where a GPU tells how many jobs it runs, as JSON: what it still runs of that which slb gave up keeps its slot
    (docs/jobs.md#truth-from-the-gpu)."""
    active_jobs_field: Annotated[str, Field(min_length=1, max_length=128)] = "active_jobs"
    """The field of that answer: a number, or the jobs themselves; with dots, a field within a field."""
    sync_interval: Annotated[Seconds, Field(ge=0.05)] = 5.0
    """How long between two such questions to one GPU, by all instances together."""
    result_ttl: Annotated[Seconds, Field(ge=1)] = 86_400.0
    """How long an ended job and its result can be asked for."""
    finished_limit: Annotated[int, Field(ge=1, le=10_000_000)] = 100_000
    """How many jobs that are completed, failed or cancelled can be asked for; with more, those that ended first go
    before their `result_ttl` is over (docs/jobs.md#how-long-a-job-is-kept)."""
    hopeless_statuses: Statuses = (400, 413, 415, 422)
    """Statuses by which a GPU says that the payload is at fault: the job has failed. Any other from 300 to 499 is
    taken for a fault of that GPU, and the job is tried again, elsewhere where that is possible."""
    busy_statuses: Statuses = (429, 503, 529)
    """Statuses by which a GPU says that it is busy: the job goes elsewhere, or back to its place. Cog says 409."""
    max_busy_answers: Annotated[int, Field(ge=1, le=10_000)] = 100
    """How often GPUs may be busy for a job while they take others; then it is dead-lettered
    (docs/jobs.md#a-job-that-gpus-have-no-time-for)."""
    payload_limit: Annotated[int, Field(ge=2, le=MOST_PAYLOAD)] = MOST_PAYLOAD
    """Bytes of a payload."""
    result_limit: Annotated[int, Field(ge=2, le=MOST_PAYLOAD)] = MOST_PAYLOAD
    """Bytes of a GPU's answer. The job of a longer one is dead-lettered: another attempt would end alike."""
    endpoint: Annotated[str, Field(max_length=2048, pattern=r'^/[!-"$-~]*$')] = "/generate"
    """Where jobs are posted to. Settings that are put without it leave it as it is."""
    fallback_models: Annotated[tuple[ModelId, ...], Field(max_length=MOST_FALLBACKS)] = ()
    """Models at whose GPUs a job goes on where it was tried as often as it may be, or where this one has no GPU
    (docs/jobs.md#fallback-models)."""
    priorities: Annotated[PrioritiesSetting, Field(min_length=1)] = _CLASSES
    """Classes and their weights; within a class jobs run in the order they came."""
    paused: bool = False
    """A paused model takes jobs, and begins none."""
    buffer: Literal["redis", "cloud-tasks"] = "redis"
    """`cloud-tasks`: a job waits for a task of Cloud Tasks, and then for a slot (docs/jobs.md#cloud-tasks)."""

    @model_validator(mode="after")
    def _fit_together(self) -> "ModelConfig":
        if self.poll_endpoint_template and "{id}" not in self.poll_endpoint_template:
            raise ValueError("poll_endpoint_template: has to contain {id}")
        if len(set(self.fallback_models)) < len(self.fallback_models):
            raise ValueError("fallback_models: names a model twice")
        if both := set(self.hopeless_statuses) & set(self.busy_statuses):
            raise ValueError(f"hopeless_statuses: {min(both)} is in busy_statuses too")
        return self

    def class_of(self, priority: str | bool | None) -> str | None:
        """The class of a job submitted with it: the heaviest for true, the lightest for false and for none. None
        where there is no such class."""
        weights = dict(self.priorities)
        if isinstance(priority, str):
            return priority if priority in weights else None
        choose = max if priority else min
        return choose(weights, key=lambda name: (weights[name], name))

    @property
    def weights(self) -> str:
        """`class=weight`, with commas."""
        return ",".join(f"{name}={weight}" for name, weight in self.priorities)


@dataclass(frozen=True, slots=True)
class JobRequest:
    """What a caller submits. `id`: its own, or that of its idempotency key; empty: one is made. `deadline` in
    seconds from now, 0 for none; `owner`: that of its caller's token, by `owner_of`."""

    model: str
    payload: Any
    id: str = ""
    priority: str | bool | None = None
    callback_url: str = ""
    metadata: Any = None
    deadline: float = 0.0
    max_retries: int | None = None
    owner: str = ""


class Submission(NamedTuple):
    """A job as it is submitted. `written`: payload and all else that is kept of it, as JSON; `digest`: 32
    characters, of which the first 24 are the same for the same job, and the others say who has submitted it;
    `deadline` in milliseconds, 0 for none; `is_buffered`: it waits for its task first."""

    model: str
    id: str
    priority: str
    digest: str
    written: bytes
    deadline: int
    calls_back: bool
    is_buffered: bool = False


class Submitted(NamedTuple):
    """`is_new`: it was not known under this id; `position`: how many of its class are before it,
    -1 where it does not wait."""

    id: str
    is_new: bool
    state: JobState
    position: int


class JobShown(NamedTuple):
    """A job at one moment; times in seconds since the epoch, 0 where it has not come to that. `attempts` were
    begun, `failures` of them failed; `position`: how many of its class are before it, -1 where it does not wait.
    `on`: the fallback model at whose GPUs it goes on, "" for its own. `task_retries`: how often its task had been
    sent before it was last, -1 where it never was. `written` and `result` are JSON, empty where they were not asked
    for. `moves`: how often its state or its progress has changed. `progress`: JSON, empty where there is none.
    `busy`: how often GPUs were busy for it while they took others. `owner`: whose token submitted it, by
    `owner_of`; of a job that was submitted without one, that of nobody."""

    id: str
    model: str
    state: JobState
    priority: str
    attempts: int
    failures: int
    begun: float
    ended: float
    error: str
    member: str
    on: str
    callback_attempts: int
    callback_error: str
    task_retries: int
    submitted: float
    position: int
    written: str
    result: str
    moves: int = 0
    progress: str = ""
    busy: int = 0
    owner: str = ""


class Waiting(NamedTuple):
    """A class in which `size` jobs wait. `passed`: how far it has come in the fair order; with each job of it that
    begins it goes on by 1 / its weight, and the class that is least far is next."""

    name: str
    passed: float
    size: int


class Line(NamedTuple):
    """What a queued job waits for. `position`: how many of its class are before it; `each`: seconds of slots that a
    job of the model takes, None where none has ended yet; `running`: how many run, `since` how many seconds those
    of them that have run longest; `classes`: those in which jobs wait."""

    name: str
    position: int
    each: float | None
    running: int
    since: tuple[float, ...]
    classes: tuple[Waiting, ...]


MISSED = "missed"
"""The name of the event that tells of moves of which nothing is known."""


class JobEvent(NamedTuple):
    """`name`: the state that a job has come to, or MISSED, then without a job. `id` is the same at every instance,
    `size` the bytes it takes here, about."""

    name: str
    id: str
    model: str
    job: JobShown | None
    size: int


def read_submitted(written: str) -> Mapping[str, Any]:
    """The fields of a `Submission.written`; none where another program has damaged it."""
    try:
        fields = orjson.loads(written)
    except orjson.JSONDecodeError:
        return {}
    return fields if isinstance(fields, dict) else {}


class Claimed(NamedTuple):
    """A job that is this instance's to run. `token`: the number of this attempt, which fences off all before it;
    `remote`: the GPU's own id of what it runs for an attempt before, `at` which member; `on`: the fallback model
    whose GPU runs it, "" for its own; `waited`: seconds since it was submitted; `busy`: how often GPUs were
    busy for it while they took others."""

    model: str
    id: str
    token: str
    attempts: int
    failures: int
    remote: str
    at: str
    written: str
    on: str = ""
    waited: float = 0.0
    busy: int = 0


class Buffered(NamedTuple):
    """A job that waits for its task. `number`: of its submission, among its model's; `tasks`: how many were made
    for it."""

    id: str
    number: str
    tasks: int


class ModelStats(NamedTuple):
    """How many of a model's jobs are where. `oldest`: the job that has waited longest, `since` when, in seconds
    since the epoch; `counts`: what happened how often since the model's first job; `dead_since`: when the first of
    those that are dead was given up, 0.0 where none is."""

    buffered: int
    queued: int
    retrying: int
    processing: int
    callbacks: int
    dead: int
    ended: int
    oldest: str
    since: float
    counts: dict[str, int]
    dead_since: float = 0.0

    @property
    def is_empty(self) -> bool:
        """Whether there is no job of the model, ended ones included."""
        return not any(self[: self._fields.index("oldest")])


@lru_cache(maxsize=4096)
def owner_of(name: str) -> str:
    """What is kept with a job of the token that submitted it: 8 characters, the same for the same name."""
    return hashlib.blake2b(name.encode(), digest_size=4).hexdigest() if name else ""


@lru_cache(maxsize=4096)
def route_of(model: str) -> str:
    """`flux` -> `/jobs/flux`, `llama3:8b` -> `/jobs/llama3%3A8b`: in the normal form, as all routes are. Raises
    InvalidName."""
    return normal_path(ROUTE + checked_model(model))


@lru_cache(maxsize=4096)
def model_of(path: str) -> str | None:
    """The model whose jobs a route's upstreams run; None for any other route."""
    if not path.startswith(ROUTE):
        return None
    try:
        return checked_model(unquote(path.removeprefix(ROUTE)))
    except InvalidName:
        return None
