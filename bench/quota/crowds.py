"""What is wanted of a router, so that tokens are short, or callers, or slots, and nothing else.

The same crowds ask in simulated and in real time.
"""

import asyncio
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain, repeat
from math import ceil, inf
from random import Random
from typing import Self

from bench.quota.book import Book
from bench.quota.drain import Drain, Manner
from bench.quota.work import BURST_PART, MINUTE, Model, Setting
from slb.quota.client import Router

CROWD = 2
"""Callers, in units of slots, where demand is above what may go."""
FEW_CALLERS, MANY_SLOTS = 24, 1000
UNLIMITED = 100
"""By this the limits are raised where callers are to be the bottleneck."""
WEIGHTS = (1, 2, 3, 4)
SLOTS_A_WEIGHT = 40
CALL_SECONDS = 20.0
"""What a call takes on average where slots are short, at every model: then slots alone decide who gets what."""
PLENTY = 2
"""Prompts, in units of what will be answered."""
AMPLE = 10
"""Tokens, in units of what the slots could use, where slots are short."""


@dataclass(frozen=True)
class Crowd:
    """So many callers ask without a pause, and are never restarted. `pace`: calls they come to in a second, about,
    where nothing else is short."""

    setting: Setting
    callers: int
    pace: float

    @property
    def manner(self) -> Manner:
        return Manner(timeout=inf, workers=self.callers)

    def for_seconds(self, seconds: float) -> Self:
        """More prompts than can be answered in so long, from the first again where there are too few."""
        works = self.setting.backlog
        count = ceil(PLENTY * seconds * self.pace) + self.callers
        several = list(chain.from_iterable(repeat(works, ceil(count / len(works)))))[:count]
        return replace(self, setting=replace(self.setting, backlog=several))

    def hurried(self, factor: float) -> Self:
        """The same where time is compressed by `factor`."""
        return replace(self, setting=self.setting.hurried(factor), pace=self.pace * factor)

    async def ask(self, router: Router, seconds: float, book: Book) -> None:
        """For so long; what runs then is cut off, and given back."""
        drain = Drain(router, self.setting.models, self.manner, book)
        began = asyncio.get_running_loop().time()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await drain.drain(self.setting.backlog)
        book.drained = asyncio.get_running_loop().time() - began
        book.exhausted = min(seconds, book.drained)


def short_of_tokens(setting: Setting) -> Crowd:
    """Demand above every limit, all the time. Callers know what their calls come to."""
    exact = [replace(work, estimate=work.tokens) for work in setting.backlog]
    mean = sum(work.tokens for work in exact) / len(exact)
    pace = sum(model.rate for model in setting.models) / mean
    callers = CROWD * sum(model.slots for model in setting.models)
    return Crowd(replace(setting, backlog=exact), callers, pace)


def short_of_callers(setting: Setting) -> Crowd:
    """Neither limits nor slots are short, so that only weights decide."""
    roomy = [
        replace(each, limit=each.limit * UNLIMITED, burst=each.burst * UNLIMITED, slots=MANY_SLOTS)
        for each in setting.models
    ]
    return Crowd(replace(setting, models=roomy), FEW_CALLERS, FEW_CALLERS / _mean_seconds(setting))


def short_of_slots(setting: Setting) -> Crowd:
    """Slots in proportion of the weights, calls that take the same time at every model, but for luck, and prompts
    that are all alike: what one model gets more than its share of is not chance. The first calls are cut short at
    random, so that not all slots are freed at the same time."""
    tokens = round(sum(work.tokens for work in setting.backlog) / len(setting.backlog))
    models = [_slotted(f"slots-{weight}", weight, tokens) for weight in WEIGHTS]
    slots = sum(model.slots for model in models)
    alike = [replace(work, context=tokens, generated=0, estimate=tokens) for work in setting.backlog]
    rng = Random(setting.seed)
    first = [replace(work, luck=work.luck * rng.random()) for work in alike[:slots]]
    return Crowd(Setting(models, first + alike[slots:], setting.seed), CROWD * slots, slots / CALL_SECONDS)


def _slotted(name: str, weight: int, tokens: int) -> Model:
    slots = weight * SLOTS_A_WEIGHT
    limit = round(AMPLE * tokens * slots / CALL_SECONDS * MINUTE)
    return Model(name, limit, inf, CALL_SECONDS, slots, weight, limit // BURST_PART)


def _mean_seconds(setting: Setting) -> float:
    """Of a call, where each model gets as many as its weight says."""
    weights = sum(model.weight for model in setting.models)
    return sum(
        model.weight / weights * sum(map(model.seconds, setting.backlog)) / len(setting.backlog)
        for model in setting.models
    )
