"""What is to be done, and by whom: a backlog of prompts with the lengths of real LLM traffic, and ten emulated
models, from quick and roomy to slow and scarce."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

from bench.gpu.work import TRACES, log_normal, read_trace

MINUTE = 60.0
LUCK_CV = 0.2
FIRST_SECONDS = 1.0
LEAST_SECONDS, MOST_SECONDS = 1.0, 120.0
"""Of one call, whatever the model."""

BURST_PART = 6
"""A bucket holds this part of a minute's tokens, which is slb's default."""

ROOM = 3.0
"""Slots of a model, in units of the calls that its limit keeps in flight on average."""

LIMITS_AND_SPEEDS = (
    (240_000, 200.0),
    (190_000, 120.0),
    (150_000, 80.0),
    (120_000, 50.0),
    (95_000, 30.0),
    (75_000, 20.0),
    (55_000, 12.0),
    (40_000, 8.0),
    (25_000, 6.0),
    (15_000, 4.0),
)


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


@dataclass(frozen=True)
class Setting:
    """What all ways of draining have in common."""

    models: Sequence[Model]
    backlog: Sequence[Work]
    seed: int


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
    return [
        _model(f"model-{number}", round(limit * scale), speed, backlog)
        for number, (limit, speed) in enumerate(LIMITS_AND_SPEEDS)
    ]


def _model(name: str, limit: int, speed: float, backlog: Sequence[Work]) -> Model:
    bare = Model(name, limit, speed, FIRST_SECONDS, 1, max(1, limit // 5000), limit // BURST_PART)
    fitting = [work for work in backlog if work.estimate <= bare.burst] or backlog
    calls_a_second = bare.rate / (sum(work.tokens for work in fitting) / len(fitting))
    busy = calls_a_second * sum(map(bare.seconds, fitting)) / len(fitting)
    return replace(bare, slots=max(2, round(ROOM * busy)))


def least_seconds(models: Sequence[Model], backlog: Sequence[Work]) -> float:
    """The quotas' own bound. No router that keeps the limits drains sooner: every model's bucket is full at first,
    it admits at its limit from the first moment to the last, no call takes any time, and every prompt suits every
    model."""
    tokens = sum(work.tokens for work in backlog)
    return max(0.0, (tokens - sum(model.burst for model in models)) / sum(model.rate for model in models))
