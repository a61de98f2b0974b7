"""What a DNS responder counts, and how it is shown to Prometheus."""

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from prometheus_client.metrics_core import Metric

from slb.observe.families import counter, families, gauge, read_gauge


@dataclass
class DnsCounts:
    """Of one process."""

    is_on: bool = False
    answers: defaultdict[tuple[str, str], int] = counter(
        "slb_dns_answers", "Answers to queries.", "transport", "rcode"
    )
    truncated: int = counter("slb_dns_truncated", "Of them, those that say to ask again over TCP.")
    dropped: defaultdict[str, int] = counter("slb_dns_dropped", "Packets without an answer.", "reason")
    connections: Callable[[], int] = read_gauge("slb_dns_connections", "Open TCP connections.")
    addresses: Callable[[], int] = read_gauge("slb_dns_addresses", "Addresses in the answers.")
    out: Callable[[], int] = read_gauge("slb_dns_addresses_out", "Known addresses that are not in the answers.")
    fail_open: bool = gauge("slb_dns_fail_open", "1 while no instance is found ready, and the answers keep some.")
    checks: defaultdict[str, int] = counter("slb_dns_checks", "Checks of instances.", "result")


def dns_families(counts: DnsCounts) -> Iterator[Metric]:
    """None where the role is off."""
    if counts.is_on:
        yield from families(counts)
