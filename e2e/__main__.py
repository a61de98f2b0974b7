"""`python -m e2e`: start the reference topology, send a thousand requests round its two addresses, as many to the
same upstreams by a name in DNS, then kill one of the instances under traffic."""

import argparse
import signal
import sys
from collections.abc import Sequence

from rich.console import Console

from e2e import by_name, kill
from e2e.client import NotYet, measure, report
from e2e.dns import NameServer
from e2e.topology import ADDRESSES, NAME, PATH, CannotRun, Topology, patience

_WAIT = 20.0
"""Seconds until both upstreams must be served by both instances, on an idle machine."""


def main(arguments: Sequence[str] | None = None) -> int:
    """0 if every instance and upstream served exactly its half, and no request failed for a killed one; else 1."""
    parser = argparse.ArgumentParser(prog="python -m e2e")
    parser.add_argument("--requests", type=int, default=1000, help="a multiple of 4, so that halves can be exact")
    requests = parser.parse_args(arguments).requests
    if requests < 4 or requests % 4:
        parser.error("--requests is a multiple of 4")
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    console = Console()
    try:
        return 0 if _run(requests, console) else 1
    except (NotYet, CannotRun) as error:
        print(f"e2e: {error}", file=sys.stderr)
        return 1


def _run(requests: int, console: Console) -> bool:
    console.print("starting Redis, two instances, two upstreams that register through the first, and slb dns")
    with NameServer() as names, Topology(str(names)) as topology:
        console.print(f"{NAME} is {' and '.join(ADDRESSES)}, port {topology.port}; sending {requests} requests")
        counts = measure(NAME, topology.dns, topology.port, PATH, requests, patience(_WAIT))
        exact = report(counts, console)
        console.print(f"the same upstreams as {by_name.register(topology, names)}")
        counts = measure(NAME, topology.dns, topology.port, by_name.BY_NAME, requests, patience(_WAIT))
        exact = report(counts, console) and exact
        victim = ADDRESSES[-1]
        outcome = kill.killed_under_traffic(
            NAME, topology.dns, topology.port, PATH, victim, lambda: topology.kill(victim), requests
        )
        return kill.report(outcome, victim, console) and exact


if __name__ == "__main__":
    sys.exit(main())
