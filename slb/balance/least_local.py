"""The least loaded as far as this instance can see."""

from random import Random

from slb.balance.order import by_load
from slb.balance.upstream import LiveUpstream


class LeastLocal:
    """Fewest requests in flight here per slot; the search starts one further each time, so ties rotate."""

    greedy = True
    ring: None = None

    def __init__(self, rng: Random) -> None:
        self._start = rng.randrange(1 << 16)

    def pick(self, eligible: tuple[LiveUpstream, ...], key: bytes = b"") -> LiveUpstream:
        start = self._start % len(eligible)
        self._start += 1
        best = eligible[start]
        for upstream in eligible[start + 1 :] + eligible[:start]:
            if upstream.inflight * best.spec.slots < best.inflight * upstream.spec.slots:
                best = upstream
        return best

    def order(self, eligible: tuple[LiveUpstream, ...], key: bytes = b"") -> list[LiveUpstream]:
        start = self._start % len(eligible)
        self._start += 1
        return by_load(eligible[start:] + eligible[:start])
