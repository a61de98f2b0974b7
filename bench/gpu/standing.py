"""How one balancer did in one case."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from bench.figures.figure import percentile
from bench.gpu.load import Result

SERVED, SHED = 200, 503
CURVE_STEPS_PER_NINE, NINES = 20, 3


@dataclass(frozen=True)
class Standing:
    """`latencies_ms` are those of the requests that were served, in ascending order; `failure` says why there are
    none. `late_ms` is how late the load sent its requests, p99: part of every latency, and the load's own doing."""

    label: str
    latencies_ms: Sequence[float] = ()
    requests: int = 0
    shed: int = 0
    errors: int = 0
    late_ms: float = 0.0
    failure: str = ""

    @classmethod
    def of(cls, label: str, result: Result) -> Self:
        ended = list(zip(result.statuses, result.latencies, strict=True))
        served = sorted(latency * 1e3 for status, latency in ended if status == SERVED)
        shed = result.statuses.count(SHED)
        late = percentile(result.sent_late, 0.99) * 1e3
        return cls(label, served, len(ended), shed, len(ended) - len(served) - shed, late)

    @classmethod
    def computed(cls, label: str, latencies: Sequence[float]) -> Self:
        return cls(label, sorted(latency * 1e3 for latency in latencies), len(latencies))

    def at(self, share: float) -> float:
        """The latency in milliseconds that `share` of the served requests do not exceed; NaN without any."""
        return percentile(self.latencies_ms, share)

    @property
    def p99(self) -> float:
        return self.at(0.99)

    def curve(self) -> list[tuple[float, float]]:
        """Share and latency in ms, from the median to the last percentile that a few requests stand for."""
        shares = [1 - 10 ** (-step / CURVE_STEPS_PER_NINE) for step in range(NINES * CURVE_STEPS_PER_NINE + 1)]
        return [(share, self.at(share)) for share in shares if share >= 0.5 and self.latencies_ms]

    def as_json(self) -> dict[str, object]:
        return {
            "label": self.label,
            "requests": self.requests,
            "shed": self.shed,
            "errors": self.errors,
            "sent_late_p99_ms": round(self.late_ms, 3),
            "failure": self.failure,
            "curve_ms": [(round(share, 5), round(latency, 3)) for share, latency in self.curve()],
        }
