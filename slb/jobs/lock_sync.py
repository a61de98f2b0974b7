"""Truth from the GPU: a slot whose attempt was given up is held back while its GPU may still run that attempt.

An attempt that was cut off, timed out or cancelled has ended for its job, and not for the GPU. What the GPU runs is
the `active_jobs` of its `health_endpoint`, which one instance at a time reads. Without one a GPU that was polled is
polled on.
"""

import asyncio
from collections.abc import Sequence
from random import Random
from typing import Any, NamedTuple, Protocol

import orjson
import structlog

from slb.balance.upstream import Handle, LiveUpstream
from slb.control.jobs import JobLane
from slb.errors import RedisUnavailable, Refused, ScriptFailed
from slb.job import ModelConfig
from slb.jobs.attempt import told
from slb.jobs.gpu_call import AnswerTooLarge, Caller, GpuRequest
from slb.observe.jobs import JobCounts
from slb.routing.mirror import Mirror

FRESH = 5.0
"""Seconds for which an attempt may be missing in what its GPU counts: it was claimed, and is on its way."""
_ANSWERED_WITHIN = 2.0
"""Seconds a GPU may take to say how many jobs it runs: with FRESH, an attempt that it does not count was on its way
for 3 s."""
_LONGEST = 1 << 16
"""Bytes of that answer."""

_log = structlog.get_logger("slb.jobs")


class Counted(Protocol):
    """The slots of the model's GPUs, as the whole fleet counts them. Raises RedisUnavailable."""

    async def in_flight(self, member: str) -> int | None:
        """Those in use, and those that are held back; None where that is not known."""

    async def idle(self, member: str, silence: float) -> int:
        """The GPU runs nothing: what instances hold there that have been silent for so many seconds is free."""


class HeldSlot(NamedTuple):
    """`began`: when its attempt did, `until`: when it is freed whatever the GPU says, in seconds of the loop's
    clock; `poll`: asks how that attempt goes, None where its GPU is not asked."""

    handle: Handle
    job: str
    began: float
    until: float
    poll: GpuRequest | None = None

    @property
    def member(self) -> str:
        """Whose slot it is."""
        return self.handle.upstream.member


def no_longer_used(
    held: Sequence[HeldSlot], active: int, in_flight: int | None, asked_at: float
) -> Sequence[HeldSlot]:
    """Which of one GPU's slots that are held back its answer frees: it was asked then, and runs `active` jobs.
    Where it runs fewer than there are slots `in_flight`, as many of these are not used any more. Pure."""
    old = [each for each in held if asked_at - each.began >= FRESH]
    if active == 0:
        return old
    return old[: max(0, in_flight - active)] if in_flight is not None else ()


def active_jobs_in(body: bytes, config: ModelConfig) -> int | None:
    """What a GPU says that it runs; None where it does not say. Pure."""
    try:
        found: Any = orjson.loads(body)
    except orjson.JSONDecodeError:
        return None
    for name in config.active_jobs_field.split("."):
        found = found.get(name) if isinstance(found, dict) else None
    if isinstance(found, list | dict):  # the jobs themselves
        found = len(found)
    return found if isinstance(found, int) and not isinstance(found, bool) and found >= 0 else None


class LockSync:
    """Of one model, at one instance. `call` asks GPUs, and is no evidence about their health."""

    def __init__(
        self, lane: JobLane, mirror: Mirror, call: Caller, slots: Counted, counts: JobCounts, rng: Random
    ) -> None:
        self._lane = lane
        self._mirror = mirror
        self._call = call
        self._slots = slots
        self._counts = counts
        self._rng = rng
        self._loop = asyncio.get_running_loop()
        self._held: list[HeldSlot] = []
        self._in_flight_before: dict[str, int | None] = {}
        self._unknown: set[str] = set()
        self._is_leaving = False

    def give_up(self, handle: Handle, job: str, began: float, poll: GpuRequest | None = None) -> None:
        """An attempt has ended here, and may run on at the GPU. The slot is freed at once where the GPU cannot be
        asked."""
        config = self._lane.config
        if self._is_leaving or (config.health_endpoint is None and poll is None):
            handle.release(completed=False)
            return
        longest = config.max_poll_time if config.health_endpoint is None else config.max_processing_time
        self._held.append(HeldSlot(handle, job, began, self._loop.time() + longest, poll))
        self._count()
        _log.info("job_slot_held_back", model=self._lane.model, job=job, upstream=handle.upstream.member)

    @property
    def holds_any(self) -> bool:
        """Whether any slot is held back."""
        return bool(self._held)

    def leave(self) -> None:
        """Free all, now and from now on: the slots end with this instance."""
        self._is_leaving = True
        self._free(self._held, "this instance stops")

    async def run(self) -> None:
        """Ask until cancelled."""
        while True:
            await asyncio.sleep(self._lane.config.sync_interval * self._rng.uniform(0.9, 1.1))
            try:
                await self._turn()
            except (RedisUnavailable, ScriptFailed) as error:  # the lane says so; who asks is decided there
                _log.debug("job_gpus_not_asked", model=self._lane.model, error=str(error))

    async def _turn(self) -> None:
        now, config = self._loop.time(), self._lane.config
        self._free([each for each in self._held if now >= each.until], "its time is over")
        self._free([each for each in self._held if self._mirror.upstream(each.member) is None], "it has left")
        if config.health_endpoint is None:
            self._free([each for each in self._held if each.poll is None], "health_endpoint is not set any more")
            await asyncio.gather(*(self._poll(each, each.poll, config) for each in self._held if each.poll))
            return
        silent = await self._lane.silent(FRESH)
        members = {each.member for each in self._held}
        self._in_flight_before = {each: self._in_flight_before.get(each) for each in members}
        await asyncio.gather(*(self._look(each, each in silent) for each in members | set(silent)))

    async def _poll(self, held: HeldSlot, request: GpuRequest, config: ModelConfig) -> None:
        """Free a slot whose GPU says that the attempt has ended, or twice in a row that it knows none."""
        verdict = await told(request, config, self._call)
        is_gone = verdict.kind == "unknown" and held.job in self._unknown
        (self._unknown.add if verdict.kind == "unknown" else self._unknown.discard)(held.job)
        if (is_gone or verdict.kind in ("done", "failed", "refused")) and held in self._held:
            self._free([held], "its GPU does not run it any more")

    async def _look(self, member: str, is_silent: bool) -> None:
        config, upstream = self._lane.config, self._mirror.upstream(member)
        if upstream is None or not await self._lane.may_look(member, 0.8 * config.sync_interval):
            return  # another instance has just asked
        asked_at = self._loop.time()
        before = await self._slots.in_flight(member)
        active = await self._active_jobs(upstream, config)
        if active == 0 and is_silent:
            await self._take_back(member)
        after = await self._slots.in_flight(member)
        # What is in flight and what is active are of two moments. The least of three counts is what was in flight
        # all the time.
        known = [each for each in (self._in_flight_before.get(member), before, after) if each is not None]
        self._in_flight_before[member] = after
        held = [each for each in self._held if each.member == member]
        if active is not None and held:
            in_flight = min(known) if len(known) == 3 else None
            self._free(no_longer_used(held, active, in_flight, asked_at), "its GPU does not use it")

    async def _take_back(self, member: str) -> None:
        """What dead instances had there is over: before their leases are."""
        jobs, slots = await self._lane.idle(member, FRESH), await self._slots.idle(member, FRESH)
        _log.warning("job_gpu_idle", model=self._lane.model, upstream=member, jobs=jobs, slots=slots)

    async def _active_jobs(self, upstream: LiveUpstream, config: ModelConfig) -> int | None:
        target = config.health_endpoint
        assert target is not None
        headers = {"X-Source": "dispatcher"}
        try:
            answer = await self._call(GpuRequest(upstream, "GET", target, headers, b"", _ANSWERED_WITHIN, _LONGEST))
        except (Refused, AnswerTooLarge) as error:
            _log.debug("job_gpu_does_not_answer", upstream=upstream.member, error=str(error))
            return None
        return active_jobs_in(answer.body, config) if answer.status < 300 else None

    def _free(self, freed: Sequence[HeldSlot], why: str) -> None:
        for each in list(freed):
            self._held.remove(each)
            self._unknown.discard(each.job)
            each.handle.release(completed=False)
            _log.info("job_slot_freed", model=self._lane.model, job=each.job, upstream=each.member, why=why)
        self._count()

    def _count(self) -> None:
        self._counts.held_back[self._lane.model] = len(self._held)
