"""What the quota router counts, and how it is shown to Prometheus."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from prometheus_client.metrics_core import Metric

from slb.observe.families import counter, families, gauge, gauges
from slb.quotas import ModelState

_GAUGES: dict[str, tuple[str, Callable[[ModelState], float]]] = {
    "slb_quota_in_flight": ("Tasks that run (global).", lambda each: each.in_flight),
    "slb_quota_tokens": ("Tokens in the bucket (global).", lambda each: each.tokens),
    "slb_quota_minute_tokens": ("Tokens admitted in the last minute (global).", lambda each: each.minute),
    "slb_quota_waiting": ("Callers that wait for it (global).", lambda each: each.waiting),
    "slb_quota_max_concurrent_requests": ("The limit.", lambda each: each.limits.max_concurrent_requests),
    "slb_quota_max_tokens_per_minute": ("The limit.", lambda each: each.limits.max_tokens_per_minute),
}


@dataclass
class QuotaCounts:
    """Of one process; `models` is what was last known of all instances together."""

    is_on: bool = False
    decisions: defaultdict[tuple[str, str, str], int] = counter(
        "slb_quota_decisions", "Answers to /schedule by this instance.", "decision", "model", "reason"
    )
    tokens: defaultdict[str, int] = counter(
        "slb_quota_admitted_tokens", "Estimated tokens admitted by this instance.", "model"
    )
    ended: defaultdict[str, int] = counter("slb_quota_completions", "Answers to /complete.", "state")
    reclaimed: int = counter("slb_quota_reclaimed", "Tasks whose lease lapsed, reclaimed by this instance.")
    batches: int = counter("slb_quota_batches", "Calls of the script in Redis.")
    is_shared: bool = gauge("slb_quota_shared", "1 while Redis decides, 0 while this instance is alone.")
    models: Iterable[ModelState] = ()

    def decided(self, decision: str, model: str = "", reason: str = "", tokens: int = 0) -> None:
        self.decisions[decision, model, reason] += 1
        if tokens:
            self.tokens[model] += tokens


def quota_families(counts: QuotaCounts) -> Iterator[Metric]:
    """None where the role is off. Global figures are the same at all instances."""
    if not counts.is_on:
        return
    yield from families(counts)
    models = list(counts.models)
    for name, (text, figure) in _GAUGES.items():
        yield gauges(name, text, ("model",), (((each.model,), figure(each)) for each in models))
