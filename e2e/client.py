"""A client of the reference topology: resolves a name, goes round its addresses, counts who served.

python -m e2e.client --dns 127.0.0.1:5353 --name slb.test --port 8080 --path /p1
"""

import argparse
import http.client
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import cycle, islice

import dns.exception
import dns.resolver
from rich.console import Console
from rich.table import Table

INSTANCES = 2
UPSTREAMS = 2
_TIMEOUT = 10.0
_PAUSE = 0.05
"""Seconds for one answer; seconds between two looks at a fleet that is not ready."""


class NotYet(Exception):
    """The fleet is not ready for the measurement: what is missing, for a person."""


@dataclass
class Counts:
    """What was seen: requests by instance, by upstream, by both, and what went wrong."""

    asked: int
    pairs: Counter[tuple[str, str]] = field(default_factory=Counter)
    failures: Counter[str] = field(default_factory=Counter)

    def add(self, instance: str, status: int, upstream: str) -> None:
        """One answer: counted for the pair if it is a 200, else as a failure."""
        if status == 200:
            self.pairs[instance, upstream] += 1
        else:
            self.failures[f"{instance}: status {status}"] += 1

    def by_instance(self) -> Counter[str]:
        return self._by(0)

    def by_upstream(self) -> Counter[str]:
        return self._by(1)

    def _by(self, place: int) -> Counter[str]:
        found: Counter[str] = Counter()
        for pair, count in self.pairs.items():
            found[pair[place]] += count
        return found

    def exact(self, instances: int, upstreams: int) -> bool:
        """Whether every pair of instance and upstream served just its share, and nothing failed."""
        pairs = instances * upstreams
        return not self.failures and list(self.pairs.values()) == [self.asked / pairs] * pairs


def resolve(name: str, server: tuple[str, int], wait: float) -> list[str]:
    """The A records of `name` that the DNS server `server` knows, in order. Raises NotYet after `wait` seconds."""
    resolver = dns.resolver.Resolver(configure=False)
    resolver.nameservers, resolver.port = [server[0]], server[1]
    end = time.monotonic() + wait
    while True:
        try:
            return sorted(record.address for record in resolver.resolve(name, "A", lifetime=_TIMEOUT))
        except dns.exception.DNSException as error:
            if time.monotonic() >= end:
                raise NotYet(f"{name} has no address at {server[0]}:{server[1]}: {error}") from None
        time.sleep(_PAUSE)


class Client:
    """One kept-alive connection to each address of a name, used in turn."""

    def __init__(self, addresses: Sequence[str], port: int, host: str) -> None:
        self._connections = {each: http.client.HTTPConnection(each, port, timeout=_TIMEOUT) for each in addresses}
        self._headers = {"Host": f"{host}:{port}"}

    def count(self, path: str, requests: int, addresses: Sequence[str] = ()) -> Counts:
        """`requests` GETs of `path`, each to the next of `addresses` (of all where none are given)."""
        counts = Counts(requests)
        for address in islice(cycle(addresses or self._connections), requests):
            try:
                status, upstream = self._get(address, path)
            except (OSError, http.client.HTTPException) as error:
                self._connections[address].close()
                counts.failures[f"{address}: {error or type(error).__name__}"] += 1
            else:
                counts.add(address, status, upstream)
        return counts

    def wait_for(self, path: str, upstreams: int, deadline: float) -> None:
        """Until every address serves `path` from `upstreams` upstreams. Raises NotYet after `deadline` seconds."""
        end = time.monotonic() + deadline
        for address in self._connections:
            while not (seen := self.count(path, 2 * upstreams, [address])).exact(1, upstreams):
                if time.monotonic() > end:
                    raise NotYet(f"{address} is not ready after {deadline:g} s: {seen}")
                time.sleep(_PAUSE)

    def close(self) -> None:
        """End the connections."""
        for connection in self._connections.values():
            connection.close()

    def _get(self, address: str, path: str) -> tuple[int, str]:
        connection = self._connections[address]
        connection.request("GET", path, headers=self._headers)
        reply = connection.getresponse()
        reply.read()
        return reply.status, reply.headers.get("X-Upstream", "?")


def measure(name: str, server: tuple[str, int], port: int, path: str, requests: int, wait: float) -> Counts:
    """Resolve, wait until two upstreams serve behind each address, then count. Raises NotYet."""
    client = Client(resolve(name, server, wait), port, name)
    try:
        client.wait_for(path, UPSTREAMS, wait)
        return client.count(path, requests)
    finally:
        client.close()


def report(counts: Counts, console: Console) -> bool:
    """Print the table and the verdict; True if the halves are exact."""
    upstreams = sorted(counts.by_upstream())
    table = Table("instance", *upstreams, "all")
    for instance, total in sorted(counts.by_instance().items()):
        table.add_row(instance, *(str(counts.pairs[instance, each]) for each in upstreams), str(total))
    table.add_section()
    table.add_row("all", *(str(counts.by_upstream()[each]) for each in upstreams), str(counts.pairs.total()))
    console.print(table)
    for failure, times in counts.failures.most_common():
        console.print(f"failed {times} times: {failure}", style="red", markup=False)
    exact = counts.exact(INSTANCES, UPSTREAMS)
    console.print(f"{counts.asked} requests: " + ("exact halves" if exact else "NOT exact"), markup=False)
    return exact


def main(arguments: Sequence[str] | None = None) -> int:
    """0 if a thousand requests (or --requests) were spread in exact halves, else 1."""
    parser = argparse.ArgumentParser(prog="python -m e2e.client")
    parser.add_argument("--dns", default="127.0.0.1:53", help="ADDRESS:PORT of the DNS server")
    parser.add_argument("--name", default="slb.test", help="the name of all instances")
    parser.add_argument("--port", type=int, default=8080)
    parser.add_argument("--path", default="/p1")
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--wait", type=float, default=60.0, help="seconds until all must be ready")
    given = parser.parse_args(arguments)
    host, _, port = given.dns.rpartition(":")
    try:
        counts = measure(given.name, (host, int(port)), given.port, given.path, given.requests, given.wait)
    except NotYet as error:
        print(f"e2e: {error}", file=sys.stderr)
        return 1
    return 0 if report(counts, Console()) else 1


if __name__ == "__main__":
    sys.exit(main())
