"""What is wanted of a router, so that tokens are short, or callers, or slots, and nothing else."""

from dataclasses import dataclass, replace
from math import inf
from random import Random

from bench.quota.drain import Manner
from bench.quota.work import BURST_PART, MINUTE, Model, Setting

CROWD = 2
"""Callers, in units of slots, where demand is above what may go."""
FEW_CALLERS, MANY_SLOTS = 24, 1000
UNLIMITED = 100
"""By this the limits are raised where callers are to be the bottleneck."""
WEIGHTS = (1, 2, 3, 4)
SLOTS_A_WEIGHT = 40
CALL_SECONDS = 20.0
"""What a call takes on average where slots are short, at every model: then slots alone decide what each gets."""
AMPLE = 10
"""Tokens, in units of what the slots could use, where slots are short."""


@dataclass(frozen=True)
class Crowd:
    """So many callers ask without a pause, and are never restarted."""

    setting: Setting
    callers: int

    @property
    def manner(self) -> Manner:
        return Manner(timeout=inf, workers=self.callers)


def short_of_tokens(setting: Setting) -> Crowd:
    """Demand above every limit, all the time. Callers know what their calls come to."""
    exact = [replace(work, estimate=work.tokens) for work in setting.backlog]
    return Crowd(replace(setting, backlog=exact), CROWD * sum(model.slots for model in setting.models))


def short_of_callers(setting: Setting) -> Crowd:
    """Neither limits nor slots are short, so that only weights decide."""
    roomy = [
        replace(each, limit=each.limit * UNLIMITED, burst=each.burst * UNLIMITED, slots=MANY_SLOTS)
        for each in setting.models
    ]
    return Crowd(replace(setting, models=roomy), FEW_CALLERS)


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
    return Crowd(Setting(models, first + alike[slots:], setting.seed), CROWD * slots)


def _slotted(name: str, weight: int, tokens: int) -> Model:
    slots = weight * SLOTS_A_WEIGHT
    limit = round(AMPLE * tokens * slots / CALL_SECONDS * MINUTE)
    return Model(name, limit, inf, CALL_SECONDS, slots, weight, limit // BURST_PART)
