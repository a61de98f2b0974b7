"""What the ring is worth: even shares, and few keys that move when an endpoint comes or goes."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from xxhash import xxh64_intdigest

from slb.balance.ring import Ring
from slb.balance.upstream import LiveUpstream
from slb.simulate.fleet import Tick, view
from slb.simulate.pictures import COLOURS, OURS, panels, save
from slb.simulate.report import Claim, Report, percent

SIZES = (5, 10, 20, 50, 100, 200)
KEYS = 50_000
MOST_MOVED = 1.5
"""Times 1/N: a ring of a hundred positions an endpoint varies, and so does the sample of keys."""

Pick = Callable[[bytes], LiveUpstream]


def modulo(upstreams: Sequence[LiveUpstream]) -> Pick:
    """Hash modulo number, over the same hash."""
    return lambda key: upstreams[xxh64_intdigest(key) % len(upstreams)]


def ring(upstreams: Sequence[LiveUpstream]) -> Pick:
    """The proxy's ring."""
    return Ring.of(upstreams).pick


@dataclass(frozen=True, slots=True)
class Row:
    """Of a pool of `size`: the shares of its endpoints, and which part of all keys moves."""

    size: int
    shares: tuple[float, ...]
    ring_more: float
    ring_less: float
    modulo_more: float
    modulo_less: float


class RingExperiment:
    """`scale` is the part of the keys that is tried."""

    def __init__(self, seed: int, scale: float) -> None:
        self._rng = Random(f"{seed} ring")
        number = max(int(KEYS * scale), 1000)
        self._keys = [f"/products/{self._rng.getrandbits(48):x}".encode() for _ in range(number)]

    def seconds(self) -> float:
        return float(len(SIZES))

    def run(self, tick: Tick) -> Report:
        rows = []
        for size in SIZES:
            rows.append(self._row(size))
            tick(1.0)
        return _report(rows, len(self._keys))

    def _row(self, size: int) -> Row:
        numbers = sorted(self._rng.sample(range(1 << 16), size + 1))
        more = view(numbers)
        pool, less = more[:-1], more[: size - 1]
        return Row(
            size,
            self._shares(ring(pool), pool),
            self._moved(ring, pool, more),
            self._moved(ring, pool, less),
            self._moved(modulo, pool, more),
            self._moved(modulo, pool, less),
        )

    def _shares(self, pick: Pick, pool: Sequence[LiveUpstream]) -> tuple[float, ...]:
        """Of the mean share: 1.0 is an endpoint with 1/N of the keys."""
        owned = Counter(pick(key) for key in self._keys)
        return tuple(sorted(owned[each] * len(pool) / len(self._keys) for each in pool))

    def _moved(
        self,
        hashing: Callable[[Sequence[LiveUpstream]], Pick],
        pool: Sequence[LiveUpstream],
        changed: Sequence[LiveUpstream],
    ) -> float:
        before, after = hashing(pool), hashing(changed)
        return sum(before(key) is not after(key) for key in self._keys) / len(self._keys)


def _report(rows: list[Row], keys: int) -> Report:
    columns = ("endpoints", "share: least", "most", "deviation", "ring moves: one more", "one less")
    return Report(
        f"{keys} keys on a ring of 100 positions an endpoint",
        (*columns, "1/N", "modulo moves: one more", "one less"),
        [_cells(row) for row in rows],
        [_claim(rows)],
        lambda path: _draw(rows, path),
        ("Shares are parts of an even one: 1.00 is 1/N of the keys.",),
    )


def _cells(row: Row) -> list[str]:
    deviation = (sum((share - 1) ** 2 for share in row.shares) / row.size) ** 0.5
    shares = [f"{value:.2f}" for value in (row.shares[0], row.shares[-1], deviation)]
    moved = (row.ring_more, row.ring_less, 1 / row.size, row.modulo_more, row.modulo_less)
    return [str(row.size), *shares, *(percent(value) for value in moved)]


def _claim(rows: list[Row]) -> Claim:
    most = max(max(row.ring_more, row.ring_less) * row.size for row in rows)
    least = min(min(row.modulo_more, row.modulo_less) for row in rows)
    text = (
        f"One endpoint more or less moves at most {most:.2f} times 1/N of the keys (goal: about 1/N, at most "
        f"{MOST_MOVED} times that); modulo hashing moves at least {percent(least, 0)} of all keys"
    )
    return Claim(text, most <= MOST_MOVED)


def _draw(rows: list[Row], path: Path) -> None:
    figure, (shares, moved) = panels(["share of the keys, 1 = 1/N", "keys that move when one endpoint is added"], 2)
    sizes = [row.size for row in rows]
    shares.boxplot([row.shares for row in rows], tick_labels=[str(size) for size in sizes], whis=(0, 100))
    shares.set_xlabel("endpoints; the whiskers are the least and the most")
    moved.plot(sizes, [row.modulo_more for row in rows], "o-", color=COLOURS[0], label="modulo")
    moved.plot(sizes, [row.ring_more for row in rows], "o-", color=OURS, label="ring")
    moved.plot(sizes, [1 / (row.size + 1) for row in rows], "--", color="#222222", label="1/(N+1)")
    moved.set(xscale="log", yscale="log", xlabel="endpoints")
    moved.legend(fontsize=8)
    save(figure, path)
