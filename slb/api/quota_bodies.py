"""What callers of the quota router send and get. Bodies are strict: wrong types and unknown fields are refused."""

from typing import Annotated, Literal, NotRequired

from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from typing_extensions import TypedDict

from slb.quotas import MOST_CONCURRENT, MOST_MODELS, MOST_TOKENS, MOST_WEIGHT, TaskState, checked_model

_MOST_ESTIMATE = 2**53 - 1  # the largest integer that JSON carries exactly

ModelId = Annotated[str, AfterValidator(checked_model), Field(examples=["gpt-4o-mini"])]
TaskId = Annotated[str, Field(min_length=1, max_length=200)]
Tokens = Annotated[int, Field(ge=1, le=MOST_TOKENS)]


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")


class ScheduleBody(_Strict):
    """`models`: those that will do, all unless given. `idempotency_key`: of this request, in every try of it."""

    estimated_tokens: Annotated[int, Field(ge=1, le=_MOST_ESTIMATE, examples=[1800])]
    models: Annotated[list[ModelId], Field(min_length=1, max_length=MOST_MODELS)] | None = None
    idempotency_key: Annotated[str, Field(pattern=r"^[^\x00-\x1f\x7f]{1,200}$")] | None = None


class CompleteBody(_Strict):
    """`actual_tokens` settles the estimate; 0 where the model was not called."""

    task_id: TaskId
    actual_tokens: Annotated[int, Field(ge=0, le=MOST_TOKENS)] | None = None


class HeartbeatBody(_Strict):
    task_id: TaskId


class LimitsBody(_Strict):
    """What is not given stays; a new model needs both limits. `burst`: tokens at once, null for a sixth of the
    limit."""

    max_tokens_per_minute: Tokens = Field(default=0)
    max_concurrent_requests: Annotated[int, Field(ge=1, le=MOST_CONCURRENT)] = Field(default=0)
    weight: Annotated[int, Field(ge=1, le=MOST_WEIGHT)] = 1
    burst: Tokens | None = None
    paused: bool = False


class AdmittedShown(TypedDict):
    """Call this model now. `lease_ttl_ms`: so long the task lives without a heartbeat."""

    model_backend_id: str
    task_id: str
    lease_ttl_ms: int


class WaitShown(TypedDict):
    """Ask again in so many milliseconds; `reason` is there where it is not merely for want of room."""

    wait_for_ms: int
    reason: NotRequired[Literal["paused", "redis_down", "no_local_share"]]


Scheduled = AdmittedShown | WaitShown


class Completed(TypedDict):
    """`state`: what the task is now. One that was reclaimed before is abandoned still."""

    ok: bool
    state: TaskState


class Beaten(TypedDict):
    """`ok` is false where the lease is gone; `state`: why."""

    ok: bool
    reason: NotRequired[Literal["not_found"]]
    state: NotRequired[TaskState]


class AbandonedShown(TypedDict):
    """`reclaimed_at` in seconds since 1970; `idempotency_key` is empty where none was given."""

    task_id: str
    state: TaskState
    model_backend_id: str
    estimated_tokens: int
    idempotency_key: str
    reclaimed_at: float


class TasksShown(TypedDict):
    """The oldest first. `left_off`: how many there are behind these; `after` the last one lists them."""

    tasks: list[AbandonedShown]
    left_off: int


class AdviceShown(TypedDict):
    """`backpressure_score`: 0 no caller waits, 1 all wait long. `suggested_parallelism`: callers in all."""

    backpressure_score: float
    suggested_parallelism: int


class ModelShown(TypedDict):
    """`burst` is what holds; `in_flight`, `tokens` (below 0 where tasks took more than estimated), `waiting`
    callers and `tokens_last_minute` are those of all instances."""

    id: str
    weight: int
    max_concurrent_requests: int
    max_tokens_per_minute: int
    burst: int
    paused: bool
    in_flight: int
    tokens: float
    waiting: int
    tokens_last_minute: int


class ModelsShown(TypedDict):
    models: list[ModelShown]


class ModelRemoved(TypedDict):
    id: str
    removed: bool
