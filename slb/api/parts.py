"""What the API is made of: every part it calls, passed in by the composition root."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

from slb import quotas
from slb.addresses import AddressRules
from slb.admission.shown import Decision, LedgerShown, RouteNow
from slb.api.body_room import BodyRoom
from slb.config import Settings
from slb.control.change_log import Entry
from slb.control.connection import Connection
from slb.control.instances import Instances
from slb.control.registry import Registry
from slb.control.watcher import Watcher
from slb.job import JobEvent, JobRequest, JobShown, ModelConfig, ModelStats, Submitted
from slb.observe.metrics import Metrics
from slb.routing.mirror import Mirror


class Quota(Protocol):
    """The quota router; `lease` in milliseconds. All raise ScriptFailed; all but `schedule` RedisUnavailable."""

    @property
    def lease(self) -> int: ...
    async def schedule(self, estimate: int, models: Sequence[str] | None, key: str) -> quotas.Decision: ...
    async def complete(self, task: str, actual: int | None) -> quotas.TaskState | None: ...
    async def heartbeat(self, task: str) -> quotas.TaskState | None: ...
    async def abandoned(self, behind: str, most: int) -> tuple[Sequence[quotas.Abandoned], int]: ...
    async def advice(self) -> quotas.Advice: ...
    async def models(self) -> Sequence[quotas.ModelState]: ...
    async def put(self, model: str, changes: quotas.Changes) -> quotas.Limits | quotas.Denied: ...
    async def delete(self, model: str) -> bool: ...


class Fleet(Protocol):
    """The fleet as one view. Entered by each who looks; Refused where too many do. `version` counts its states:
    `change` is what the last one changed, `state` all of it, both JSON objects section -> key -> object, without
    the section `view`; `self_shown` is what that has of this process."""

    @property
    def version(self) -> int: ...
    @property
    def change(self) -> bytes: ...
    def state(self) -> bytes: ...
    def self_shown(self) -> dict[str, Any]: ...
    def enter(self) -> None: ...
    def leave(self) -> None: ...
    async def first(self) -> None: ...
    async def updated(self, version: int, seconds: float) -> bool: ...
    async def history(self) -> dict[str, Any]: ...
    async def explain(self, request_id: str) -> list[dict[str, Any]]: ...
    async def in_flight(self, member: str) -> dict[str, Any]: ...


class JobStream(Protocol):
    """`next` gives None where no event has come for so many seconds, and at the end. `on_drop` is called where the
    stream ends because its events are not taken fast enough."""

    on_drop: Callable[[], None]

    @property
    def has_ended(self) -> bool: ...
    async def next(self, seconds: float) -> JobEvent | None: ...


class Jobs(Protocol):
    """The job dispatcher. All but `models` and `configured` raise Refused, ScriptFailed and RedisUnavailable."""

    @property
    def models(self) -> Mapping[str, ModelConfig]: ...
    @property
    def configured(self) -> Mapping[str, ModelConfig]: ...
    async def look(self) -> None: ...
    async def configure(self, model: str, fields: Mapping[str, Any], is_change: bool = ...) -> ModelConfig: ...
    async def unconfigure(self, model: str) -> bool: ...
    async def submit(self, request: JobRequest) -> Submitted: ...
    async def show(self, id_: str, model: str = "") -> JobShown: ...
    async def eta(self, job: JobShown) -> float | None: ...
    async def wait(self, id_: str, model: str, seconds: float, is_wanted: Callable[[], bool] = ...) -> JobShown: ...
    async def cancel(self, id_: str, model: str = "") -> str: ...
    async def report(self, id_: str, token: str, model: str, told: Any, text: bytes) -> None: ...
    async def listed(self, model: str, kind: str, first: int, most: int) -> tuple[Sequence[JobShown], bool]: ...
    async def names(self) -> Sequence[str]: ...
    async def revive(self, id_: str, model: str = "") -> bool: ...
    async def remove(self, id_: str, model: str = "") -> bool: ...
    async def stats(self) -> Mapping[str, ModelStats]: ...
    def follow(self, model: str, id_: str) -> AbstractAsyncContextManager[JobStream]: ...
    async def check_push(self, headers: Mapping[str, str]) -> None: ...
    async def push(self, model: str, id_: str, retries: int, is_wanted: Callable[[], bool] = ...) -> None: ...


class ReadChanges(Protocol):
    """Of the fleet's log, after the id `since`, or the last ones; at most so many. Raises RedisUnavailable."""

    async def __call__(self, since: str, most: int) -> Sequence[Entry]: ...


async def _no_changes(since: str, most: int) -> Sequence[Entry]:
    return []


async def _no_workers(path: str) -> Sequence[Any]:
    return []


@dataclass
class ApiParts:
    """`settings` is replaced by a reload; `quota` and `jobs` are None where that role is off; `fleet`: the view of
    the fleet, None on the data listener. `metrics_text`: the metrics of this process, or of all workers, as
    OpenMetrics where that is True; `status_extra` is merged into
    /status; `ledger`: the slots that are held; `explain`: the last decision for a route's path; `route_now`: what a
    request of a path, in normal form, and a key would find now; `serving`: of a
    supervisor, whether any worker serves; `workers_answers`: the JSON that each ready worker answers to GET of a
    path, None for one without an answer; `started`: seconds since the epoch; `replaced`: whether another process
    has taken its sockets; `body_room`: for the bodies of all applications."""

    settings: Settings
    mirror: Mirror
    registry: Registry
    watcher: Watcher
    instances: Instances
    connection: Connection
    metrics: Metrics
    metrics_text: Callable[[bool], Awaitable[bytes]]
    draining: Callable[[], bool]
    started: float
    address_rules: AddressRules
    quota: Quota | None = None
    jobs: Jobs | None = None
    fleet: Fleet | None = None
    read_changes: ReadChanges = _no_changes
    status_extra: Callable[[], dict[str, Any]] = dict
    ledger: Callable[[], LedgerShown] = lambda: LedgerShown(pools={})
    explain: Callable[[str], Decision | None] = lambda path: None
    route_now: Callable[[str, bytes], RouteNow | None] = lambda path, key: None
    serving: Callable[[], bool] = lambda: True
    workers_answers: Callable[[str], Awaitable[Sequence[Any]]] = _no_workers
    replaced: Callable[[], bool] = lambda: False
    body_room: BodyRoom = field(default_factory=BodyRoom)
