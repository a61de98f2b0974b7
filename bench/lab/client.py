"""A simulated client process: it sees its own requests and nobody else's."""

from collections.abc import Callable, Mapping
from functools import partial

from bench.lab.events import Schedule
from bench.lab.measures import Measures
from bench.lab.server import Server
from slb.balance.upstream import Handle, LiveUpstream

Choose = Callable[[bytes], LiveUpstream]
"""From a key to the upstream that is to answer it."""


class Client:
    """Sends every request to the server that `choose` names. A reply takes no time on the way: what the client
    measures is the server's own time, waiting included."""

    def __init__(
        self, choose: Choose, servers: Mapping[str, Server], schedule: Schedule, measures: Measures
    ) -> None:
        self._choose = choose
        self._servers = servers
        self._schedule = schedule
        self._measures = measures

    def send(self, key: bytes) -> None:
        upstream = self._choose(key)
        answered = partial(self._answered, Handle(upstream), self._schedule.now)
        self._servers[upstream.member].serve(key, answered)

    def _answered(self, handle: Handle, sent: float, hit: bool) -> None:
        handle.release()
        now = self._schedule.now
        self._measures.answered(now, hit, now - sent)
