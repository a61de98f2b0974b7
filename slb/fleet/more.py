"""What this process tells of jobs, of the quota router and of rings, where it has them."""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import nlargest
from typing import Any, Protocol

import structlog

from slb.balance.ring import Ring
from slb.control.slices import Slices
from slb.errors import RedisUnavailable, Refused, ScriptFailed
from slb.fleet.frame import MOST_SHARES
from slb.fleet.rates import Rates, per_second
from slb.job import ENDED, JobShown, ModelConfig, ModelStats
from slb.observe.quota import QuotaCounts
from slb.observe.ring import Rings
from slb.quotas import Caller, ModelState

_ERRORS_EVERY = 10.0
"""Seconds between two looks at why jobs have failed."""
_MOST_LISTED = 100
"""Jobs of one model, that are dead or tried again, that are looked at for it."""
_MOST_LOOKED_AT = 5
"""Models with such jobs that are."""
_MOST_ERRORS = 10
_LONGEST_ERROR = 120
_MOST_CALLERS = 5
"""That are shown of those that wait for one model of the quota router, the next first."""
_MOST_WAITED_FOR = 20
"""Models whose callers are looked up for one frame: those for which the most wait."""
_LONGEST_KEY = 64

_log = structlog.get_logger("slb.fleet")

Section = dict[str, Mapping[str, Any]]


class Jobs(Protocol):
    @property
    def seen(self) -> Mapping[str, ModelStats]: ...
    @property
    def models(self) -> Mapping[str, ModelConfig]: ...
    def slotless(self, member: str) -> int: ...
    async def listed(self, model: str, kind: str, first: int, most: int) -> tuple[list[JobShown], bool]: ...


class Router(Protocol):
    async def callers(self, model: str, most: int) -> list[Caller]: ...


@dataclass
class MoreSources:
    """`jobs`, `router`: None where that role is off. `at_risk`: why a crash of Redis may lose jobs, empty where
    not."""

    rings: Rings
    quota: QuotaCounts
    jobs: Jobs | None = None
    router: Router | None = None
    at_risk: Callable[[], str] = str


class More:
    """`sections` is asked for each frame: all of each, of which a frame has what has changed."""

    def __init__(self, sources: MoreSources, clock: Callable[[], float] = time.monotonic) -> None:
        self._from = sources
        self._clock = clock
        self._shares: dict[str, tuple[Ring, Mapping[str, Any]]] = {}
        self._rates = Rates()
        self._failed_by: dict[str, dict[str, int]] = {}
        self._retried_by: dict[str, dict[str, int]] = {}
        self._errors_at = 0.0

    async def sections(self, slices: Slices) -> dict[str, Section]:
        if self._from.jobs is not None and self._clock() >= self._errors_at:
            self._errors_at = self._clock() + _ERRORS_EVERY
            await self._look_at_errors(self._from.jobs)
        return {"rings": await self._rings(slices), "quota": await self._quota(), "jobs": self._jobs()}

    async def _rings(self, slices: Slices) -> Section:
        before, self._shares = self._shares, {}
        for path, policy in self._from.rings():
            ring = policy.newest
            if ring is None or len(ring) > MOST_SHARES:
                continue
            known = before.get(path)
            self._shares[path] = known if known and known[0] is ring else (ring, await _shares(ring, slices))
        return {path: shown for path, (_, shown) in self._shares.items()}

    async def _quota(self) -> Section:
        states = list(self._from.quota.models)
        callers = {} if self._from.router is None else await _next_callers(self._from.router, states)
        weights = max(1, sum(each.limits.weight for each in states))
        return {each.model: _quota(each, weights, callers.get(each.model, ())) for each in states}

    def _jobs(self) -> Section:
        jobs = self._from.jobs
        return (
            {} if jobs is None else {model: self._of_model(jobs, model, each) for model, each in jobs.seen.items()}
        )

    def _of_model(self, jobs: Jobs, model: str, stats: ModelStats) -> dict[str, Any]:
        ended = sum(stats.counts.get(state, 0) for state in ENDED)
        (grown,), seconds = self._rates.grown(model, self._clock(), (ended,))
        config = jobs.models.get(model)
        return {
            "paused": config is not None and config.paused,
            "buffered": stats.buffered,
            "queued": stats.queued,
            "retrying": stats.retrying,
            "processing": stats.processing,
            "callbacks": stats.callbacks,
            "dead": stats.dead,
            "ended": stats.ended,
            "oldest": stats.oldest or None,
            "oldest_since": stats.since or None,
            "dead_since": stats.dead_since or None,
            "counts": stats.counts,
            "rate": per_second(grown, seconds),
            "failed_by": self._failed_by.get(model, {}),
            "retried_by": self._retried_by.get(model, {}),
            "at_risk": self._from.at_risk(),
        }

    async def _look_at_errors(self, jobs: Jobs) -> None:
        dead = [model for model, stats in jobs.seen.items() if stats.dead]
        retried = [model for model, stats in jobs.seen.items() if stats.retrying]
        self._failed_by = await _errors(jobs, dead, "dead", self._failed_by)
        self._retried_by = await _errors(jobs, retried, "retrying", self._retried_by)


async def _errors(
    jobs: Jobs, models: list[str], kind: str, before: Mapping[str, dict[str, int]]
) -> dict[str, dict[str, int]]:
    """By model, how many of its jobs of this kind have which error; as `before` where that cannot be read."""
    errors = {model: each for model, each in before.items() if model in models[:_MOST_LOOKED_AT]}
    for model in models[:_MOST_LOOKED_AT]:
        try:
            found, _ = await jobs.listed(model, kind, 0, _MOST_LISTED)
        except (RedisUnavailable, Refused, ScriptFailed) as error:
            _log.debug("job_errors_not_read", model=model, error=str(error))
            continue
        errors[model] = _counted(job.error for job in found)
    return errors


def _counted(errors: Iterable[str]) -> dict[str, int]:
    """The most frequent first."""
    counts: dict[str, int] = {}
    for error in errors:
        short = error[:_LONGEST_ERROR]
        counts[short] = counts.get(short, 0) + 1
    return dict(sorted(counts.items(), key=lambda each: -each[1])[:_MOST_ERRORS])


async def _next_callers(router: Router, states: Iterable[ModelState]) -> Mapping[str, Sequence[Caller]]:
    """By model; of those for which the most wait."""

    async def of_model(model: str) -> Sequence[Caller]:
        try:
            return await router.callers(model, _MOST_CALLERS)
        except (RedisUnavailable, ScriptFailed) as error:
            _log.debug("quota_callers_not_read", model=model, error=str(error))
            return ()

    waited_for = (each for each in states if each.waiting)
    models = [each.model for each in nlargest(_MOST_WAITED_FOR, waited_for, key=lambda each: each.waiting)]
    return dict(zip(models, await asyncio.gather(*map(of_model, models)), strict=True))


def _quota(state: ModelState, weights: int, callers: Sequence[Caller]) -> dict[str, Any]:
    limits = state.limits
    return {
        "tokens": round(state.tokens, 1),
        "tokens_limit": limits.bucket,
        "tokens_per_minute": limits.max_tokens_per_minute,
        "tokens_last_minute": state.minute,
        "slots": state.in_flight,
        "slots_limit": limits.max_concurrent_requests,
        "share": round(limits.weight / weights, 4),
        "promised": state.promised,
        "waiting": state.waiting,
        "next": [{"key": key[:_LONGEST_KEY], "tokens": size, "due": due / 1000} for due, size, key in callers],
        "paused": limits.paused,
    }


async def _shares(ring: Ring, slices: Slices) -> Mapping[str, Any]:
    steps = ring.shares()
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return {"shares": [[member, round(share, 6)] for member, share in end.value.items()]}
        await slices.rest()
