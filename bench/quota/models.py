"""Ten emulated models, from quick and roomy to slow and scarce."""

from dataclasses import dataclass, replace
from typing import Self

from bench.quota.backlog import Work
from slb.quotas import MOST_TOKENS

MINUTE = 60.0
LEAST_SECONDS, MOST_SECONDS = 1.0, 120.0
"""Of one call, as the models of the setting are said to take."""
BURST_PART = 6
"""A bucket holds this part of a minute's tokens, which is slb's default."""
ROOM = 3.0
"""Slots of a model, in units of the calls that its limit keeps in flight on average."""


@dataclass(frozen=True)
class Model:
    """`limit` is tokens a minute, `burst` what its bucket holds; `speed` is tokens generated a second, after
    `first` seconds. `hurry` divides what a call takes: 60 in a run where a minute lasts a second."""

    name: str
    limit: int
    speed: float
    first: float
    slots: int
    weight: int
    burst: int
    hurry: float = 1.0

    @property
    def rate(self) -> float:
        """Tokens a second."""
        return self.limit / MINUTE

    def seconds(self, work: Work) -> float:
        """What a call takes, from 1 s to 2 min."""
        takes = (self.first + work.generated / self.speed) * work.luck
        return min(MOST_SECONDS, max(LEAST_SECONDS, takes)) / self.hurry

    def hurried(self, factor: float) -> Self:
        """The same where time is compressed by `factor`: its bucket holds as much as before. No limit is above what
        may be set; nobody comes near that."""
        limit = min(MOST_TOKENS, round(self.limit * factor))
        return replace(self, limit=limit, hurry=self.hurry * factor)


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
FIRST_SECONDS = 1.0


def ten_models(backlog: list[Work], scale: float = 1.0) -> list[Model]:
    """Their limits times `scale`; each with the slots that its limit needs for work like this, and some more."""
    return [
        _model(f"model-{number}", round(limit * scale), speed, backlog)
        for number, (limit, speed) in enumerate(LIMITS_AND_SPEEDS)
    ]


def _model(name: str, limit: int, speed: float, backlog: list[Work]) -> Model:
    bare = Model(name, limit, speed, FIRST_SECONDS, 1, max(1, limit // 5000), limit // BURST_PART)
    fitting = [work for work in backlog if work.estimate <= bare.burst] or backlog
    calls_a_second = bare.rate / (sum(work.tokens for work in fitting) / len(fitting))
    busy = calls_a_second * sum(map(bare.seconds, fitting)) / len(fitting)
    return replace(bare, slots=max(2, round(ROOM * busy)))
