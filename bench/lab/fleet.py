"""A fleet in simulated time: upstreams with caches, client processes, keys that come; and how big they all are."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from random import Random

from bench.lab.model import Arrivals, Choose, Client, LruCache, Measures, Schedule, Server, Work, ZipfKeys
from slb.balance.ring import Ring
from slb.balance.upstream import LiveUpstream
from slb.model import Upstream


@dataclass(frozen=True, slots=True)
class Shape:
    """How big a fleet is. `rate` is keys a second over all clients, sent in batches of `fan_out`; there are `keys`
    different ones, asked for by Zipf's law with `exponent`, and room for `cache` of them in each upstream.
    """

    upstreams: int
    clients: int
    rate: float
    fan_out: int
    keys: int
    exponent: float
    cache: int

    def scaled(self, scale: float) -> "Shape":
        """As many upstreams and keys, and as much traffic, as this part of it; each upstream has as much to do."""
        return replace(
            self,
            upstreams=max(round(self.upstreams * scale), 2),
            rate=self.rate * max(round(self.upstreams * scale), 2) / self.upstreams,
            keys=max(round(self.keys * scale), 2 * self.fan_out),
        )


class Fleet:
    """One run: everything that happens in it follows from `seed`. Upstreams are named by number."""

    def __init__(self, shape: Shape, seed: int) -> None:
        self.shape = shape
        self.seed = seed
        self.schedule = Schedule()
        self.measures = Measures()
        self.rng = Random(f"{seed} choices")
        self.keys = ZipfKeys(shape.keys, shape.exponent, Random(f"{seed} keys"))
        self.servers: dict[str, Server] = {}
        self._arriving = Random(f"{seed} arrivals")
        self._clients: list[Client] = []

    def add_servers(self, numbers: Iterable[int], cache: Callable[[int], int] | None = None) -> None:
        """Upstreams with empty caches; `cache` is how much room each has, where they are not all alike."""
        for number in numbers:
            room = cache(number) if cache is not None else self.shape.cache
            server = Server(member(number), self.schedule, LruCache(room), Work())
            self.servers[server.member] = server

    def add_client(self, choose: Choose) -> None:
        """A client process that sends its requests as `choose` says."""
        self._clients.append(Client(choose, self.servers, self.schedule, self.measures))

    def warm(self, ring: Ring, requests: int) -> None:
        """Fill the caches by so many requests by this ring, in no time."""
        caches = {upstream: self.servers[upstream.member].cache for upstream in ring.upstreams}
        for _ in range(requests):
            key = self.keys.draw()
            caches[ring.pick(key)].put(key)

    def begin(self, until: float) -> None:
        """Let requests come up to then, once `schedule` runs."""
        shape = self.shape
        Arrivals(self.schedule, self._clients, self.keys, shape.rate, shape.fan_out, self._arriving).begin(until)


def member(number: int) -> str:
    """`10.x.y.z:80`"""
    return f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}:80"


def view(numbers: Iterable[int], zone_of: Callable[[int], str] = lambda number: "") -> tuple[LiveUpstream, ...]:
    """These upstreams as one client process sees them: what is counted of them is counted by it alone."""
    return tuple(LiveUpstream(Upstream.of(member(number), {"zone": zone_of(number)})) for number in numbers)
