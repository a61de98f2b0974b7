"""What callers of the job dispatcher send, and what they are answered. Strict: a wrong type or an unknown field is
refused by its name."""

from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from typing_extensions import TypedDict
from yarl import URL

from slb.api.quota_bodies import ModelId
from slb.job import JobState, Seconds

MOST_SUBMITTED = 1_000
"""Jobs in one body."""
MOST_OF_ONE = 4 << 20
"""Bytes of a body with one job. A payload is up to three times as long with its characters escaped."""
MOST_OF_MANY = 16 << 20
"""Bytes of a body with many. It is read as JSON in one step, for which traffic waits too: some 10 ms a MiB."""
LONGEST_WAIT = 60.0
"""Seconds an answer may wait for a job's end."""

JobId = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_:@+-]{0,127}$", examples=["order-4711"])]
"""No `.` in it: what signs callbacks separates its parts so."""


def _callback(text: str) -> str:
    if not text.startswith(("http://", "https://")):
        raise ValueError("has to begin with http:// or https://")
    try:
        parts = urlsplit(text)
        host, port = URL(text, encoded=True).host, parts.port  # as its callback will be sent
    except ValueError as error:
        raise ValueError(f"is no URL: {error}") from None
    if not host or port == 0:
        raise ValueError("has to have a host, and a port from 1 to 65535 where it names one")
    return text


CallbackUrl = Annotated[str, Field(max_length=2048, pattern=r"^[!-~]*$"), AfterValidator(_callback)]


class SubmitBody(BaseModel):
    """A job. `job_id`: its own id, by which the same job sent again is known; `Idempotency-Key` in the head says
    the same. `priority`: a class of the model, true for the heaviest, false for the lightest. `deadline`: how long
    the job may take until it has failed, queueing included. `metadata` comes back with every answer."""

    model_config = ConfigDict(strict=True, extra="forbid")

    model: ModelId
    payload: Any
    job_id: JobId | None = None
    callback_url: CallbackUrl | None = None
    priority: str | bool | None = None
    deadline: Seconds | None = None
    max_retries: Annotated[int, Field(ge=0, le=10_000)] | None = None
    metadata: Any = None


class RegisterGpuBody(BaseModel):
    """An upstream for a model's jobs. `server`: a name for people; `endpoint`: the URL that jobs are posted to;
    `slots`: how many it runs at once."""

    model_config = ConfigDict(strict=True, extra="forbid")

    model: ModelId
    server: Annotated[str, Field(max_length=253, pattern=r"^[!-~]*$")] = ""
    endpoint: Annotated[str, Field(max_length=2048, examples=["http://10.0.0.7:8000/generate"])]
    slots: Annotated[int, Field(ge=1, le=1000)] = 1


class ReportShown(TypedDict):
    """The report is kept, for the instance that follows the attempt."""

    job_id: str


class PushBody(BaseModel):
    """What stands in a task of Cloud Tasks that slb has made."""

    model_config = ConfigDict(strict=True, extra="forbid")

    model: ModelId
    job_id: JobId


class PushShown(TypedDict):
    """The job has ended, or is none any more: its task is done."""

    job_id: str


class SubmittedShown(TypedDict):
    """The job is in Redis. `is_new` is false where it was known; `position`: how many of its class are before it,
    -1 where it does not wait."""

    job_id: str
    status: JobState
    position: int
    is_new: bool


class RefusedShown(TypedDict):
    """Of one job in a list."""

    error: str
    detail: str


class ManySubmitted(TypedDict):
    """A verdict for each job, in their order."""

    jobs: list[SubmittedShown | RefusedShown]


class JobAnswer(TypedDict, total=False):
    """A job. Times in seconds since 1970. `result` and `error` are there once it has them; `progress` and `output`,
    what its GPU has made so far, where that has told them and there is no result; `position` while it waits for a
    slot: how many of its class are before it. `eta`, where one job is asked for that waits, is in how
    many seconds it will have ended, null where that cannot be known; `ran_on`: the fallback model that it has gone
    on at; `busy_answers`: how often GPUs were busy for it while they took others;
    `task_retries` once its task of Cloud Tasks was sent."""

    job_id: str
    model: str
    status: JobState
    priority: str
    attempts: int
    failures: int
    submitted_at: float
    started_at: float
    completed_at: float
    upstream: str
    ran_on: str
    position: int
    eta: float | None
    error: str
    busy_answers: int
    progress: Any
    output: Any
    result: Any
    payload: Any
    metadata: Any
    callback_attempts: int
    callback_error: str
    task_retries: int


class JobsAnswer(TypedDict):
    """`cursor`: where the next page begins; null at the end."""

    jobs: list[JobAnswer]
    cursor: str | None


class JobCancelled(TypedDict):
    """`was`: the state it was in."""

    job_id: str
    status: Literal["cancelled"]
    was: JobState


class ModelStatsShown(TypedDict):
    """Of one model, of all instances. `oldest`: the job that has waited longest, `oldest_since` from when on;
    `counts`: what happened how often since its first job."""

    buffered: int
    queued: int
    retrying: int
    processing: int
    callbacks: int
    dead_lettered: int
    ended: int
    oldest: str | None
    oldest_since: float | None
    paused: bool
    counts: dict[str, int]


class StatsShown(TypedDict):
    models: dict[str, ModelStatsShown]


class ConfigShown(TypedDict):
    """What holds for a model, as it is written."""

    model: str
    config: dict[str, Any]


class ConfigsListed(TypedDict):
    """By model what is set on it, without what is at its default."""

    models: dict[str, dict[str, Any]]


class ConfigRemoved(TypedDict):
    model: str
    removed: bool


class GpuRegistered(TypedDict):
    """Its route, `/jobs/<model>`, is one like any other."""

    model: str
    path: str
    target: str
    added: bool


class Revived(TypedDict):
    """How many dead jobs begin again."""

    retried: int


class JobRemoved(TypedDict):
    job_id: str
    removed: bool
