"""The text that Prometheus reads of a process."""

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.registry import Collector


def text_of_process(*collectors: Collector) -> bytes:
    """The metrics of `collectors`, and what the system knows of this process (`process_*`; Linux only)."""
    registry = CollectorRegistry(auto_describe=False)
    for collector in collectors:
        registry.register(collector)
    ProcessCollector(registry=registry)
    return generate_latest(registry)
