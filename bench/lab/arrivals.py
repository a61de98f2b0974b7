"""When requests come: batches at the instants of a Poisson process, each to some client, all its keys at once."""

from collections.abc import Sequence
from random import Random

from bench.lab.client import Client
from bench.lab.events import Schedule
from bench.lab.keys import ZipfKeys


class Arrivals:
    """`rate` is keys in each second, over all clients; `fan_out` of them, no two alike, make a batch that one
    client, drawn evenly, sends in parallel. With a `fan_out` of 1 each client sees a Poisson process of single
    requests.

    Keys that come together differ, since nobody asks twice for a thing in one question: the more there are in a
    batch, the less the commonest stand out.
    """

    def __init__(
        self, schedule: Schedule, clients: Sequence[Client], keys: ZipfKeys, rate: float, fan_out: int, rng: Random
    ) -> None:
        if not 0 < fan_out <= len(keys.keys):
            raise ValueError(f"batches of {fan_out} different keys of {len(keys.keys)}")
        self._schedule = schedule
        self._clients = clients
        self._keys = keys
        self._batches = rate / fan_out
        self._fan_out = fan_out
        self._rng = rng
        self._until = 0.0

    def begin(self, until: float) -> None:
        """Let them come from now on, and none after `until`."""
        self._until = until
        self._next()

    def _next(self) -> None:
        when = self._schedule.now + self._rng.expovariate(self._batches)
        if when <= self._until:
            self._schedule.at(when, self._arrive)

    def _arrive(self) -> None:
        client = self._clients[int(self._rng.random() * len(self._clients))]
        for key in self._batch():
            client.send(key)
        self._next()

    def _batch(self) -> list[bytes]:
        batch: dict[bytes, None] = {}  # keeps their order, which a set would not from run to run
        while len(batch) < self._fan_out:
            batch[self._keys.draw()] = None
        return list(batch)
