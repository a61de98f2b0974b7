"""What a session counts, as Prometheus sees it."""

from prometheus_client import CollectorRegistry, generate_latest

from slb.client import OutboundCollector, OutboundMetrics


def test_ring_and_fallback_are_counted_apart() -> None:
    metrics = OutboundMetrics()
    metrics.ring.requests[200] += 2
    metrics.ring.requests[0] += 1
    metrics.fallback.requests[502] += 1
    metrics.ring.errors["reset"] += 1
    metrics.fallback.errors["status"] += 1
    metrics.ring.durations.observe(0.002)
    metrics.fallbacks["percentage"] += 1
    metrics.retries["reset"] += 1
    metrics.shed += 3
    metrics.out = lambda: 4
    registry = CollectorRegistry()
    registry.register(OutboundCollector(metrics))
    lines = generate_latest(registry).decode().splitlines()
    for line in (
        'slb_outbound_requests_total{code="200",way="ring"} 2.0',
        'slb_outbound_requests_total{code="none",way="ring"} 1.0',
        'slb_outbound_requests_total{code="502",way="fallback"} 1.0',
        'slb_outbound_errors_total{reason="reset",way="ring"} 1.0',
        'slb_outbound_errors_total{reason="status",way="fallback"} 1.0',
        'slb_outbound_duration_seconds_count{way="ring"} 1.0',
        'slb_outbound_duration_seconds_count{way="fallback"} 0.0',
        'slb_outbound_fallbacks_total{reason="percentage"} 1.0',
        'slb_outbound_retries_total{reason="reset"} 1.0',
        "slb_outbound_shed_total 3.0",
        "slb_outbound_inflight 4.0",
    ):
        assert line in lines
