"""What one way of draining came to."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf

from bench.quota.book import Book
from bench.quota.held import idle, in_use, long_run, most_at_once, most_in_a_minute, most_spent_in_a_minute
from bench.quota.models import MINUTE, Model
from bench.table import percentile


@dataclass(frozen=True)
class Held:
    """One model's part. `most` and `spent` are tokens in the fullest 60 s, as admitted and as they came to, in
    units of the limit and one bucket; `rate` is the long-run rate in units of the limit while all was wanted;
    `in_use` the share of its slots that was taken meanwhile, on average."""

    model: Model
    calls: int
    most: float
    spent: float
    rate: float
    idle: float
    at_once: int
    in_use: float

    def as_json(self) -> dict[str, object]:
        return {
            "model": self.model.name,
            "tokens_a_minute": self.model.limit,
            "slots": self.model.slots,
            "weight": self.model.weight,
            "calls": self.calls,
            "at_once": self.at_once,
            "fullest_minute": round(self.most, 5),
            "fullest_minute_as_spent": round(self.spent, 5),
            "long_run_rate": round(self.rate, 5),
            "idle": round(self.idle, 5),
            "slots_in_use": round(self.in_use, 5),
        }


@dataclass(frozen=True)
class Share:
    """Of all tokens that were admitted; `due` is what the weights say."""

    model: str
    got: float
    due: float

    @property
    def off(self) -> float:
        return self.got / self.due - 1

    def as_json(self) -> dict[str, object]:
        return {"model": self.model, "share": round(self.got, 5), "by_weight": round(self.due, 5)}


@dataclass(frozen=True)
class Standing:
    """`drained` is seconds until the last answer, in the time of the models."""

    label: str
    book: Book
    models: Sequence[Model]
    hurry: float = 1.0

    @property
    def drained(self) -> float:
        return self.book.drained * self.hurry

    @property
    def idle(self) -> float:
        """Of all quotas together, until the last task was taken up."""
        whole = sum(model.burst + model.rate * self.book.exhausted for model in self.models)
        unused = sum(held.idle * (held.model.burst + held.model.rate * self.book.exhausted) for held in self.held)
        return unused / whole

    @property
    def slowest_rate(self) -> float:
        return min(held.rate for held in self.held)

    @property
    def fullest(self) -> float:
        return max(held.most for held in self.held)

    @property
    def over_cap(self) -> int:
        """The most tasks that any model ever had beyond its slots."""
        return max(0, *(held.at_once - held.model.slots for held in self.held))

    @cached_property
    def held(self) -> list[Held]:
        """Model by model."""
        return [self._held(model) for model in self.models]

    @cached_property
    def shares(self) -> list[Share]:
        """Model by model."""
        weights = sum(model.weight for model in self.models)
        tokens = {
            model.name: sum(entry.known(inf) for entry in self.book.entries.get(model.name, []))
            for model in self.models
        }
        whole = sum(tokens.values()) or 1  # none, where the run ended before its first minute did
        return [Share(each.name, tokens[each.name] / whole, each.weight / weights) for each in self.models]

    @property
    def share_error(self) -> float:
        """By how much the model that is furthest from its weight's share is off, relative to that."""
        return max(abs(share.off) for share in self.shares)

    def as_json(self) -> dict[str, object]:
        tries = self.book.tries
        return {
            "drained_seconds": round(self.drained, 3),
            "repeated": self.book.repeated,
            "idle": round(self.idle, 5),
            "waits_obeyed": tries.again,
            "waits_kept": tries.again_admitted,
            "late_p99_ms": round(percentile(self.book.late, 0.99) * 1000, 1) if self.book.late else None,
            "models": [each.as_json() for each in self.held],
            "shares": [each.as_json() for each in self.shares],
        }

    def _held(self, model: Model) -> Held:
        entries = self.book.entries.get(model.name, [])
        allowed = model.limit + model.burst
        until = self.book.exhausted
        return Held(
            model,
            len(entries),
            most_in_a_minute(entries) / allowed,
            most_spent_in_a_minute(entries) / allowed,
            long_run(entries, model.rate, until, min(MINUTE / self.hurry, until / 4)),
            idle(entries, model.rate, model.burst, until),
            most_at_once(entries),
            in_use(entries, model.slots, until),
        )
