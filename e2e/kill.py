"""An instance killed under traffic: clients that resolve the name again when its TTL is over, and try the next
address where one does not answer."""

import http.client
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import dns.exception
import dns.resolver
from rich.console import Console

from e2e.client import NotYet

_TIMEOUT = 10.0
_PACE = 0.005
"""Seconds between two requests."""


@dataclass
class Outcome:
    """Of all requests: how many no address answered, and how many only the next address did. `left`: seconds from
    the kill until the address was in no answer any more, None where it stayed."""

    requests: int = 0
    failed: int = 0
    elsewhere: int = 0
    left: float | None = None


class Names:
    """The addresses of one name, asked of `server` again when their TTL is over, as a client's own cache does."""

    def __init__(self, name: str, server: tuple[str, int]) -> None:
        self._name = name
        self._resolver = dns.resolver.Resolver(configure=False)
        self._resolver.nameservers, self._resolver.port = [server[0]], server[1]
        self._addresses: list[str] = []
        self._until = 0.0

    def addresses(self) -> Sequence[str]:
        """In the order they came in."""
        if time.time() >= self._until:
            answer = self._resolver.resolve(self._name, "A", lifetime=_TIMEOUT)
            self._addresses, self._until = [record.address for record in answer], answer.expiration
        return self._addresses

    def now(self) -> Sequence[str]:
        """Those that are answered at this moment, whatever is kept."""
        return [record.address for record in self._resolver.resolve(self._name, "A", lifetime=_TIMEOUT)]


def killed_under_traffic(
    name: str,
    server: tuple[str, int],
    port: int,
    path: str,
    victim: str,
    kill: Callable[[], None],
    requests: int,
) -> Outcome:
    """Send `requests`, each on a connection of its own, and `kill` what listens on `victim` after a fourth of them.
    Raises NotYet where `victim` is not answered before."""
    names, outcome = Names(name, server), Outcome()
    if victim not in names.now():
        raise NotYet(f"{victim} is not among the addresses of {name}: {', '.join(names.now())}")
    killed = 0.0
    while outcome.requests < requests or (outcome.left is None and time.monotonic() - killed < _TIMEOUT):
        if outcome.requests == requests // 4:
            kill()
            killed = time.monotonic()
        outcome.requests += 1
        _send(names.addresses(), port, path, f"{name}:{port}", outcome)
        if killed and outcome.left is None and victim not in names.now():
            outcome.left = time.monotonic() - killed
        time.sleep(_PACE)
    return outcome


def _send(addresses: Sequence[str], port: int, path: str, host: str, outcome: Outcome) -> None:
    for attempt, address in enumerate(addresses):
        connection = http.client.HTTPConnection(address, port, timeout=_TIMEOUT)
        try:
            connection.request("GET", path, headers={"Host": host})
            if connection.getresponse().status == 200:
                outcome.elsewhere += attempt > 0
                return
        except (OSError, http.client.HTTPException):
            continue
        finally:
            connection.close()
    outcome.failed += 1


def report(outcome: Outcome, victim: str, console: Console) -> bool:
    """Print what was seen; True where no request failed, and the address has left the answers."""
    left = "stayed in the answers" if outcome.left is None else f"left the answers after {outcome.left:.2f} s"
    console.print(f"{victim} killed under traffic: it {left}", markup=False)
    verdict = (
        f"{outcome.requests} requests: {outcome.failed} failed, {outcome.elsewhere} served by the next address"
    )
    console.print(verdict, markup=False)
    return outcome.failed == 0 and outcome.left is not None
