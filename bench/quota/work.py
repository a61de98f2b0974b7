"""What is to be done, and by whom: a backlog of prompts with the lengths of real LLM traffic, and ten emulated
models, from quick and roomy to slow and scarce; and what is wanted of a router so that one thing is short, and
nothing else."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from random import Random

from bench.gpu.work import TRACES, log_normal, read_trace

MINUTE = 60.0
LUCK_CV = 0.2
FIRST_SECONDS = 1.0
LEAST_SECONDS, MOST_SECONDS = 1.0, 120.0  # of one call, whatever the model
BURST_PART = 6  # a bucket holds this part of a minute's tokens, which is slb's default
ROOM = 3.0  # slots of a model, in units of the calls that its limit keeps in flight on average
LIMITS = (240_000, 190_000, 150_000, 120_000, 95_000, 75_000, 55_000, 40_000, 25_000, 15_000)
SPEEDS = (200.0, 120.0, 80.0, 50.0, 30.0, 20.0, 12.0, 8.0, 6.0, 4.0)

CROWD = 2  # callers, in units of slots, where demand is above what may go
FEW_CALLERS, MANY_SLOTS = 24, 1000
UNLIMITED = 100  # by this the limits are raised where callers are to be the bottleneck
WEIGHTS, SLOTS_A_WEIGHT = (1, 2, 3, 4), 40
CALL_SECONDS = 20.0  # a call on average where slots are short, at every model: then slots alone decide
AMPLE = 10  # tokens, in units of what the slots could use, where slots are short


@dataclass(frozen=True, slots=True)
class Work:
    """One prompt. `estimate` is what its caller expects in all, `generated` is known once it is answered. `luck`
    is by how much a call takes longer than its length alone would make it, or shorter."""

    number: int
    context: int
    generated: int
    estimate: int
    luck: float

    @property
    def tokens(self) -> int:
        return self.context + self.generated


@dataclass(frozen=True)
class Model:
    """`limit` is tokens a minute, `burst` what its bucket holds; `speed` is tokens generated a second, after
    `first` seconds."""

    name: str
    limit: int
    speed: float
    first: float
    slots: int
    weight: int
    burst: int

    @property
    def rate(self) -> float:
        """Tokens a second."""
        return self.limit / MINUTE

    def seconds(self, work: Work) -> float:
        """What a call takes, from 1 s to 2 min."""
        takes = (self.first + work.generated / self.speed) * work.luck
        return min(MOST_SECONDS, max(LEAST_SECONDS, takes))


AT_ONCE = ((200, 0.5), (300, 0.5), (300, 2.0), (300, 10.0))
"""Callers that come together with one call each, and the seconds it takes, at a model of `AT_ONCE_SLOTS`."""
AT_ONCE_SLOTS = 100


@dataclass(frozen=True)
class Setting:
    """What is drained. `callers`: so many ask without a pause and are never restarted; None: as many as the router
    advises, restarted now and then."""

    models: Sequence[Model]
    backlog: Sequence[Work]
    seed: int
    callers: int | None = None


def made(lengths: Sequence[tuple[int, int]], rng: Random) -> list[Work]:
    """`lengths`: tokens of the prompt and of the answer. A caller's estimate is its prompt and the mean answer."""
    expected = round(sum(generated for _, generated in lengths) / len(lengths))
    luck = log_normal(rng, 1.0, LUCK_CV, len(lengths))
    return [
        Work(number, context, generated, context + expected, luck[number])
        for number, (context, generated) in enumerate(lengths)
    ]


def traced(folder: Path, count: int, seed: int) -> list[Work]:
    """`count` prompts drawn without replacement from all traces in `folder` (all where there are fewer), shuffled.
    Raises BenchError where there are no traces."""
    lines = [line for name in TRACES.values() for line in read_trace(folder / name)]
    lengths = [(line.context, line.generated) for line in lines]
    rng = Random(seed)
    rng.shuffle(lengths)
    return made(lengths[:count], rng)


def ten_models(backlog: Sequence[Work], scale: float = 1.0) -> list[Model]:
    """Their limits times `scale`; each with the slots that its limit needs for work like this, and some more."""
    models = []
    for number, (whole, speed) in enumerate(zip(LIMITS, SPEEDS, strict=True)):
        limit = round(whole * scale)
        bare = Model(f"model-{number}", limit, speed, FIRST_SECONDS, 1, max(1, limit // 5000), limit // BURST_PART)
        fitting = [work for work in backlog if work.estimate <= bare.burst] or backlog
        calls_a_second = bare.rate / (sum(work.tokens for work in fitting) / len(fitting))
        busy = calls_a_second * sum(map(bare.seconds, fitting)) / len(fitting)
        models.append(replace(bare, slots=max(2, round(ROOM * busy))))
    return models


def least_seconds(models: Sequence[Model], backlog: Sequence[Work]) -> float:
    """The quotas' own bound. No router that keeps the limits drains sooner: every model's bucket is full at first,
    it admits at its limit from the first moment to the last, no call takes any time, and every prompt suits every
    model."""
    tokens = sum(work.tokens for work in backlog)
    return max(0.0, (tokens - sum(model.burst for model in models)) / sum(model.rate for model in models))


def short_of_tokens(setting: Setting) -> Setting:
    """Demand above every limit, all the time. Callers know what their calls come to."""
    exact = [replace(work, estimate=work.tokens) for work in setting.backlog]
    return replace(setting, backlog=exact, callers=CROWD * sum(model.slots for model in setting.models))


def short_of_callers(setting: Setting) -> Setting:
    """Neither limits nor slots are short, so that only weights decide."""
    roomy = [
        replace(each, limit=each.limit * UNLIMITED, burst=each.burst * UNLIMITED, slots=MANY_SLOTS)
        for each in setting.models
    ]
    return replace(setting, models=roomy, callers=FEW_CALLERS)


def short_of_slots(setting: Setting) -> Setting:
    """Slots in proportion of the weights, calls that take the same time at every model, but for luck, and prompts
    that are all alike: what one model gets more than its share of is not chance. The first calls are cut short at
    random, so that not all slots are freed at the same time."""
    tokens = round(sum(work.tokens for work in setting.backlog) / len(setting.backlog))
    models = []
    for weight in WEIGHTS:
        slots = weight * SLOTS_A_WEIGHT
        limit = round(AMPLE * tokens * slots / CALL_SECONDS * MINUTE)
        models.append(Model(f"slots-{weight}", limit, inf, CALL_SECONDS, slots, weight, limit // BURST_PART))
    slots = sum(model.slots for model in models)
    alike = [replace(work, context=tokens, generated=0, estimate=tokens) for work in setting.backlog]
    rng = Random(setting.seed)
    first = [replace(work, luck=work.luck * rng.random()) for work in alike[:slots]]
    return Setting(models, first + alike[slots:], setting.seed, CROWD * slots)
