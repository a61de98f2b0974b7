"""What was measured: one sample a peer, case and round; and the medians that the tables show."""

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from statistics import median

OUR_NAME = "slb"


@dataclass(frozen=True)
class Sample:
    """One peer under one case in one round. `failure` says why there are no figures.

    Meanwhile other processes used `others_cpu_seconds` of the proxy's core, and a hypervisor withheld
    `stolen_seconds` of it (part of that ends up in the figures: a guest cannot tell all of it apart).
    """

    peer: str
    case: str
    round: int
    requests: int = 0
    seconds: float = 0.0
    p50_us: float = 0.0
    p99_us: float = 0.0
    cpu_seconds: float = 0.0
    resident_mib: float = 0.0
    others_cpu_seconds: float = 0.0
    stolen_seconds: float = 0.0
    errors: dict[str, int] = field(default_factory=dict)
    failure: str = ""

    @property
    def cpu_us_per_request(self) -> float:
        """CPU time of the proxy's processes, user and system, in microseconds per counted request."""
        return self.cpu_seconds * 1e6 / self.requests

    @property
    def requests_per_second(self) -> float:
        return self.requests / self.seconds

    @property
    def busy(self) -> float:
        """Share of its core that the proxy used: near 1 the proxy was the limit, below it the load."""
        return self.cpu_seconds / self.seconds

    @property
    def others(self) -> float:
        """Share of the proxy's core that strangers used. They evict its caches: figures come out high."""
        return self.others_cpu_seconds / self.seconds

    @property
    def stolen(self) -> float:
        """Share of the proxy's core that the hypervisor gave to other machines."""
        return self.stolen_seconds / self.seconds


@dataclass(frozen=True)
class Summary:
    """The medians over the rounds of one peer in one case; errors are added up."""

    peer: str
    case: str
    rounds: int
    requests_per_second: float
    p50_us: float
    p99_us: float
    cpu_us: float
    cpu_us_least: float
    cpu_us_most: float
    busy: float
    resident_mib: float
    errors: dict[str, int]
    failures: tuple[str, ...]


def summarise(samples: Iterable[Sample], peer: str, case: str) -> Summary | None:
    """Medians of the rounds that have figures; None where no round was tried."""
    tried = [sample for sample in samples if (sample.peer, sample.case) == (peer, case)]
    if not tried:
        return None
    good = [sample for sample in tried if not sample.failure]
    cpu = [sample.cpu_us_per_request for sample in good]

    def middle(figure: Callable[[Sample], float]) -> float:
        return median(map(figure, good)) if good else 0.0

    return Summary(
        peer=peer,
        case=case,
        rounds=len(good),
        requests_per_second=middle(lambda sample: sample.requests_per_second),
        p50_us=middle(lambda sample: sample.p50_us),
        p99_us=middle(lambda sample: sample.p99_us),
        cpu_us=middle(lambda sample: sample.cpu_us_per_request),
        cpu_us_least=min(cpu, default=0.0),
        cpu_us_most=max(cpu, default=0.0),
        busy=middle(lambda sample: sample.busy),
        resident_mib=middle(lambda sample: sample.resident_mib),
        errors=_added(sample.errors for sample in good),
        failures=tuple(sample.failure for sample in tried if sample.failure),
    )


def ratio(ours: Summary | None, peers: Summary) -> float | None:
    """CPU per request of slb in units of the peer's: 0.5 is half of what the peer needs."""
    return ours.cpu_us / peers.cpu_us if ours and ours.rounds and peers.rounds else None


def as_json(samples: Iterable[Sample]) -> list[dict[str, object]]:
    """Every sample as it was taken, with the figures that follow from it where there are any."""
    return [asdict(sample) | (_derived(sample) if not sample.failure else {}) for sample in samples]


def _derived(sample: Sample) -> dict[str, object]:
    return {
        "requests_per_second": round(sample.requests_per_second, 1),
        "cpu_us_per_request": round(sample.cpu_us_per_request, 3),
        "busy": round(sample.busy, 3),
        "others": round(sample.others, 3),
        "stolen": round(sample.stolen, 3),
    }


def _added(counts: Iterable[dict[str, int]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for kinds in counts:
        for kind, count in kinds.items():
            total[kind] = total.get(kind, 0) + count
    return total
