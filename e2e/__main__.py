"""`python -m e2e`: start the reference topology, send a thousand requests round its two addresses."""

import argparse
import signal
import sys
from collections.abc import Sequence

from rich.console import Console

from e2e.client import Counts, NotYet, measure, report
from e2e.dns import NameServer, addresses_of
from e2e.topology import ADDRESSES, PATH, CannotRun, Topology, patience

NAME = "slb.test"
_WAIT = 20.0
"""Seconds until both upstreams must be served by both instances, on an idle machine."""


def main(arguments: Sequence[str] | None = None) -> int:
    """0 if every instance and every upstream served exactly its half, else 1."""
    parser = argparse.ArgumentParser(prog="python -m e2e")
    parser.add_argument("--requests", type=int, default=1000, help="a multiple of 4, so that halves can be exact")
    requests = parser.parse_args(arguments).requests
    if requests < 4 or requests % 4:
        parser.error("--requests is a multiple of 4")
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    console = Console()
    try:
        return 0 if report(_run(requests, console), console) else 1
    except (NotYet, CannotRun) as error:
        print(f"e2e: {error}", file=sys.stderr)
        return 1


def _run(requests: int, console: Console) -> Counts:
    console.print("starting Redis, two instances, and two upstreams that register through the first")
    with Topology() as topology, NameServer(*addresses_of(NAME, ADDRESSES)) as names:
        console.print(f"{NAME} is {' and '.join(ADDRESSES)}, port {topology.port}; sending {requests} requests")
        return measure(NAME, names.address, topology.port, PATH, requests, patience(_WAIT))


if __name__ == "__main__":
    sys.exit(main())
