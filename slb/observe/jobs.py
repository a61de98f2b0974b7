"""What the job dispatcher counts, and how it is shown to Prometheus."""

from collections import defaultdict
from collections.abc import Iterator, Mapping

from prometheus_client.metrics_core import Metric

from slb.job import ModelStats
from slb.observe.families import by_labels, counters, gauges


class JobCounts:
    """Of one process; `models` is what was last known of all instances together."""

    def __init__(self) -> None:
        self.is_on = False
        self.attempts: defaultdict[tuple[str, str], int] = defaultdict(int)
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self.stale: defaultdict[str, int] = defaultdict(int)
        self.callbacks: defaultdict[tuple[str, str], int] = defaultdict(int)
        self.held_back: defaultdict[str, int] = defaultdict(int)
        self.models: Mapping[str, ModelStats] = {}

    def ended(self, model: str, outcome: str, seconds: float) -> None:
        """An attempt ended after so long at the GPU."""
        self.attempts[model, outcome] += 1
        self.seconds[model] += seconds


def job_families(counts: JobCounts) -> Iterator[Metric]:
    """Nothing where the role is off."""
    if not counts.is_on:
        return
    attempts, callbacks = list(counts.attempts.items()), list(counts.callbacks.items())
    yield counters("slb_job_attempts", "Attempts that ended here.", ("model", "outcome"), attempts)
    yield counters("slb_job_attempt_seconds", "Seconds of these at GPUs.", ("model",), by_labels(counts.seconds))
    stale = by_labels(counts.stale)
    yield counters("slb_job_stale", "Outcomes that came after another attempt.", ("model",), stale)
    yield counters("slb_job_callbacks", "Callbacks sent from here.", ("model", "outcome"), callbacks)
    held = by_labels(counts.held_back)
    yield gauges("slb_job_slots_held_back", "Slots whose GPU may run what was given up here.", ("model",), held)
    states = [
        ((model, state), float(getattr(stats, state)))
        for model, stats in counts.models.items()
        for state in ("queued", "retrying", "processing", "callbacks", "dead")
    ]
    yield gauges("slb_jobs", "Jobs by state (global).", ("model", "state"), states)
