"""What the job dispatcher counts, and how it is shown to Prometheus."""

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping

from prometheus_client.metrics_core import Metric

from slb.job import ENDED, Claimed, ModelStats
from slb.observe.families import Histogram, by_labels, counters, gauges, histograms

_MOST_WORDS = 16


class JobCounts:
    """Of one process; `models` is what was last known of all instances together. `clock` gives seconds since the
    epoch."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self.clock = clock
        self.is_on = False
        self.attempts: defaultdict[tuple[str, str], int] = defaultdict(int)
        self.waited: defaultdict[str, Histogram] = defaultdict(Histogram)
        self.ran: defaultdict[str, Histogram] = defaultdict(Histogram)
        self.told: defaultdict[str, Histogram] = defaultdict(Histogram)
        self.stale: defaultdict[str, int] = defaultdict(int)
        self.callbacks: defaultdict[tuple[str, str], int] = defaultdict(int)
        self.held_back: defaultdict[str, int] = defaultdict(int)
        self.tasks: defaultdict[tuple[str, str], int] = defaultdict(int)
        self.models: Mapping[str, ModelStats] = {}
        self._words: defaultdict[str, set[str]] = defaultdict(set)

    def is_new_word(self, model: str, word: str) -> bool:
        """Whether a model's GPUs have not been heard to say it before. Of very many the first count."""
        words = self._words[model]
        if word in words or len(words) >= _MOST_WORDS:
            return False
        words.add(word)
        return True

    def began(self, job: Claimed) -> None:
        """A job was taken from its queue, the first time or again."""
        if job.token.startswith("1."):  # its first attempt
            self.waited[job.model].observe(job.waited)

    def ended(self, model: str, outcome: str, seconds: float) -> None:
        """An attempt ended after so long at the GPU."""
        self.attempts[model, outcome] += 1
        self.ran[model].observe(seconds)

    def called_back(self, model: str, outcome: str, seconds: float) -> None:
        """A callback was sent, so long after the job's end."""
        self.callbacks[model, outcome] += 1
        if outcome == "delivered":
            self.told[model].observe(max(0.0, seconds))


def job_families(counts: JobCounts) -> Iterator[Metric]:
    """Nothing where the role is off."""
    if not counts.is_on:
        return
    attempts, callbacks = list(counts.attempts.items()), list(counts.callbacks.items())
    yield counters("slb_job_attempts", "Attempts that ended here.", ("model", "outcome"), attempts)
    yield from _times(counts)
    stale = by_labels(counts.stale)
    yield counters("slb_job_stale", "Outcomes that came after another attempt.", ("model",), stale)
    yield counters("slb_job_callbacks", "Callbacks sent from here.", ("model", "outcome"), callbacks)
    held = by_labels(counts.held_back)
    yield gauges("slb_job_slots_held_back", "Slots whose GPU may run what was given up here.", ("model",), held)
    tasks = list(counts.tasks.items())
    yield counters("slb_job_tasks", "Tasks of Cloud Tasks made from here.", ("model", "outcome"), tasks)
    yield from _of_all(dict(counts.models), counts.clock())


def _times(counts: JobCounts) -> Iterator[Metric]:
    for name, text, by_model in (
        ("slb_job_queue_seconds", "From a job's submission to its first attempt.", counts.waited),
        ("slb_job_attempt_seconds", "Of attempts at GPUs.", counts.ran),
        ("slb_job_callback_seconds", "From a job's end to the delivery of its callback.", counts.told),
    ):
        yield histograms(name, text, dict(by_model), "model")


def _of_all(models: Mapping[str, ModelStats], now: float) -> Iterator[Metric]:
    """What is the same at every instance."""
    oldest = [((model,), max(0.0, now - stats.since) if stats.since else 0.0) for model, stats in models.items()]
    yield gauges("slb_job_oldest_seconds", "How long the oldest job has waited (global).", ("model",), oldest)
    outcomes = [
        ((model, outcome), float(stats.counts.get(outcome, 0)))
        for model, stats in models.items()
        for outcome in sorted(ENDED)
    ]
    yield counters("slb_job_outcomes", "Ends of jobs (global).", ("model", "outcome"), outcomes)
    states = [
        ((model, state), float(getattr(stats, state)))
        for model, stats in models.items()
        for state in ("buffered", "queued", "retrying", "processing", "callbacks", "dead")
    ]
    yield gauges("slb_jobs", "Jobs by state (global).", ("model", "state"), states)
