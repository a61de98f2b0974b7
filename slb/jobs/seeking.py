"""Which slots the jobs of one model wait for: those of its own GPUs, and of its fallback models'."""

from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Protocol

from slb.admission.gates import Gates
from slb.balance.upstream import Handle
from slb.control.jobs import JobLane
from slb.job import ModelConfig, route_of
from slb.jobs.lock_sync import LockSync
from slb.jobs.slots import Slots
from slb.jobs.stages import stages_of
from slb.routing.mirror import Mirror


class Others(Protocol):
    """The models of this instance."""

    def config_of(self, model: str) -> ModelConfig:
        """What holds for a model, known or not."""

    def sync_of(self, model: str) -> LockSync | None:
        """What holds its slots back; None where it has none here."""


class Seeking:
    """`may_begin`: whether any job may begin here now. `on_slot` gets each slot that was waited for and since when
    it is held, and before these the model whose it is. "" is the jobs' own model, here and below."""

    def __init__(
        self,
        lane: JobLane,
        gates: Gates,
        mirror: Mirror,
        others: Others,
        may_begin: Callable[[], bool],
        on_slot: Callable[[str, Handle, float], None],
    ) -> None:
        self._lane = lane
        self._gates = gates
        self._mirror = mirror
        self._others = others
        self._may_begin = may_begin
        self._on_slot = on_slot
        self._slots: dict[str, Slots] = {}
        self._sources: dict[str, tuple[str, ...]] = {}
        self._queued: Mapping[str, int] = {}

    def queued(self, queued: Mapping[str, int]) -> None:
        """So many jobs wait at each model."""
        self._queued = queued
        self.seek()

    def none_waits(self, sources: Collection[str]) -> None:
        """No job waits at these models any more."""
        self._queued = {each: number for each, number in self._queued.items() if each not in sources}

    def seek(self) -> None:
        """Wait for slots while there are jobs to begin. What runs is bounded by the slots alone."""
        config = self._lane.config
        may_begin = self._may_begin() and not config.paused
        stages = stages_of(config.fallback_models, self._queued, self.has_gpu) if may_begin else ()
        self._sources = dict(stages)
        for on in {*self._slots, *self._sources}:
            wanted = sum(self._queued.get(each, 0) for each in self._sources.get(on, ()))
            is_paused = on and self._others.config_of(on).paused
            self.slots_of(on).want(0 if is_paused else wanted)

    def slots_of(self, on: str) -> Slots:
        """The slots of a model."""
        if on not in self._slots:
            path, on_slot = route_of(on or self._lane.model), partial(self._on_slot, on)
            self._slots[on] = Slots(path, self._gates, self._mirror, on_slot, self.seek)
        return self._slots[on]

    def sources_of(self, on: str) -> tuple[str, ...]:
        """The models at which jobs wait that may begin at this one's GPUs."""
        return self._sources.get(on, (on,))

    def has_gpu(self, on: str) -> bool:
        """Whether a model has one."""
        record = self._mirror.records.get(route_of(on or self._lane.model))
        return record is not None and bool(record.members)
