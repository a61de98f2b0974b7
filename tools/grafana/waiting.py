"""The dashboards of what waits: requests for slots, jobs for GPUs, callers for models."""

from tools.grafana.model import Board, Panel, Row, Variable
from tools.grafana.promql import global_rate, least, mean, most, quantile, rate, total

_ROUTE = 'route=~"$route"'
_MODEL = 'model=~"$model"'
_SHARES = (0.5, 0.9, 0.99)

_REQUESTS = Row(
    "Requests that wait",
    (
        Panel(
            "Waiting",
            "short",
            {total("slb_queue_depth", "route, priority", _ROUTE): "{{route}} {{priority}}"},
            "By route and class. All the time above 0: too few upstreams.",
            stacked=True,
        ),
        Panel(
            "Wait",
            "s",
            {
                quantile(share, "slb_queue_wait_seconds", "route", _ROUTE): f"p{100 * share:g} {{{{route}}}}"
                for share in _SHARES
            },
            "Of those that had to wait and got a slot.",
        ),
        Panel(
            "Place in the queue",
            "short",
            {mean("slb_queue_position", "route", _ROUTE): "{{route}}"},
            "How many of its class were before a request, in the mean.",
        ),
        Panel(
            "Got no slot",
            "reqps",
            {rate("slb_shed_total", "reason"): "{{reason}}"},
            "By reason: docs/global-view.md#what-a-client-sees.",
        ),
    ),
)
_LEDGER = Row(
    "The ledger",
    (
        Panel(
            "Redis decides",
            "bool",
            {least("slb_ledger_shared", "pool"): "{{pool}}"},
            "0: an instance gives out slots without Redis, and caps hold only roughly.",
        ),
        Panel(
            "Decided without Redis",
            "reqps",
            {
                rate("slb_ledger_local_total"): "requests",
                rate("slb_ledger_local_grants_total"): "slots under a cap",
            },
            "Each of the latter may have been one too many.",
        ),
        Panel(
            "Above caps",
            "short",
            {"max(rate(slb_ledger_above_cap_total{%s}[$__rate_interval]))": "above"},
            "By how much upstreams rose above their caps, a second.",
        ),
        Panel(
            "Mended",
            "short",
            {
                rate("slb_ledger_reaped_total"): "dead instances",
                rate("slb_ledger_drift_total"): "drift",
                rate("slb_ledger_repaired_total"): "damaged keys",
                rate("slb_ledger_grants_lapsed_total"): "grants not taken up",
            },
            "A second. Drift and damage are 0 unless another program writes into the keys.",
        ),
    ),
)
_JOBS = Row(
    "Jobs",
    (
        Panel(
            "By state",
            "short",
            {most("slb_jobs", "model, state", _MODEL): "{{model}} {{state}}"},
            "Of all instances together.",
            stacked=True,
        ),
        Panel(
            "The oldest that waits",
            "s",
            {most("slb_job_oldest_seconds", "model", _MODEL): "{{model}}"},
            "Rising: too few GPUs, or none.",
        ),
        Panel(
            "Ended",
            "cps",
            {global_rate("slb_job_outcomes_total", "model, outcome", _MODEL): "{{model}} {{outcome}}"},
            "Jobs a second, of all instances together.",
        ),
        Panel(
            "Time in the queue",
            "s",
            {
                quantile(share, "slb_job_queue_seconds", "model", _MODEL): f"p{100 * share:g} {{{{model}}}}"
                for share in _SHARES
            },
            "From a job's submission to its first attempt.",
        ),
    ),
)
_ATTEMPTS = Row(
    "Attempts and callbacks",
    (
        Panel(
            "Attempts",
            "cps",
            {rate("slb_job_attempts_total", "model, outcome", _MODEL): "{{model}} {{outcome}}"},
            "`retry`: the attempt failed. `back`: the GPU was busy.",
        ),
        Panel(
            "Time at GPUs",
            "s",
            {
                quantile(share, "slb_job_attempt_seconds", "model", _MODEL): f"p{100 * share:g} {{{{model}}}}"
                for share in _SHARES
            },
            "Of an attempt.",
        ),
        Panel(
            "Callbacks",
            "cps",
            {rate("slb_job_callbacks_total", "model, outcome", _MODEL): "{{model}} {{outcome}}"},
            "`failed` ones are sent again; it is the receiver's fault mostly.",
        ),
        Panel(
            "From a job's end to its callback",
            "s",
            {quantile(0.99, "slb_job_callback_seconds", "model", _MODEL): "p99 {{model}}"},
            "Of callbacks that were delivered.",
        ),
        Panel(
            "Slots held back, stale outcomes",
            "short",
            {
                total("slb_job_slots_held_back", "model", _MODEL): "held back, {{model}}",
                rate("slb_job_stale_total", "model", _MODEL): "stale a second, {{model}}",
            },
            "Slots whose GPU may run what was given up; outcomes that came after another attempt.",
        ),
        Panel(
            "Tasks of Cloud Tasks",
            "cps",
            {rate("slb_job_tasks_total", "model, outcome", _MODEL): "{{model}} {{outcome}}"},
            "That were made here.",
        ),
    ),
)
_LIMITS = Row(
    "Models and their limits",
    (
        Panel(
            "Tokens of the last minute",
            "short",
            {
                most("slb_quota_minute_tokens", "model", _MODEL): "{{model}}",
                most("slb_quota_max_tokens_per_minute", "model", _MODEL): "limit, {{model}}",
            },
            "Admitted, of all instances together, and what may be.",
        ),
        Panel(
            "Tasks that run",
            "short",
            {
                most("slb_quota_in_flight", "model", _MODEL): "{{model}}",
                most("slb_quota_max_concurrent_requests", "model", _MODEL): "limit, {{model}}",
            },
            "Of all instances together, and how many may.",
        ),
        Panel(
            "Callers that wait",
            "short",
            {most("slb_quota_waiting", "model", _MODEL): "{{model}}"},
            "Of all instances together.",
        ),
        Panel(
            "Tokens in the bucket",
            "short",
            {most("slb_quota_tokens", "model", _MODEL): "{{model}}"},
            "At 0 callers wait.",
        ),
    ),
)
_DECISIONS = Row(
    "Decisions",
    (
        Panel(
            "Answers to /schedule",
            "reqps",
            {rate("slb_quota_decisions_total", "decision, reason"): "{{decision}} {{reason}}"},
            "By what was decided.",
        ),
        Panel(
            "Admitted tokens",
            "short",
            {rate("slb_quota_admitted_tokens_total", "model", _MODEL): "{{model}}"},
            "A second, as callers estimated them.",
        ),
        Panel(
            "Redis decides",
            "bool",
            {least("slb_quota_shared", "instance"): "{{instance}}"},
            "0: the instance decides alone.",
        ),
        Panel(
            "Ends",
            "reqps",
            {
                rate("slb_quota_completions_total", "state"): "{{state}}",
                rate("slb_quota_reclaimed_total"): "reclaimed",
            },
            "Answers to /complete, and tasks whose lease lapsed.",
        ),
        Panel(
            "Decisions in one call of Redis",
            "short",
            {f"{rate('slb_quota_decisions_total')} / {rate('slb_quota_batches_total')}": "decisions"},
            "In the mean.",
        ),
    ),
)

QUEUE = Board(
    "queue",
    "slb / queue",
    (Variable("route", 'slb_route_requests_total{job=~"$job"}', "route"),),
    (_REQUESTS, _LEDGER),
)
JOBS = Board("jobs", "slb / jobs", (Variable("model", 'slb_jobs{job=~"$job"}', "model"),), (_JOBS, _ATTEMPTS))
QUOTA = Board(
    "quota",
    "slb / quota",
    (Variable("model", 'slb_quota_in_flight{job=~"$job"}', "model"),),
    (_LIMITS, _DECISIONS),
)
