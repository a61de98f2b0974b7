"""What the ring is worth: even shares, and few keys that move when an endpoint comes or goes."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from xxhash import xxh64_intdigest

from bench.chart import BLACK, COLOURS, OURS, panels, save
from bench.lab.fleet import Report, Tick, view
from bench.table import Figure, RowsSection, Section
from slb.balance.ring import Ring
from slb.balance.upstream import LiveUpstream

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

    def seconds(self) -> int:
        return len(SIZES)

    def run(self, tick: Tick) -> Report:
        rows = []
        for size in SIZES:
            rows.append(self._row(size))
            tick()
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
    notes = [
        "Shares are parts of an even one: 1.00 is 1/N of the keys. +1, -1: keys that move when one endpoint comes "
        "or goes.",
    ]
    columns = ("endpoints", "least share", "most", "deviation", "ring: +1", "-1", "1/N", "modulo: +1", "-1")
    title = f"{keys} keys on a ring of 100 positions an endpoint"
    table = RowsSection(title, (), notes, columns, [_cells(row) for row in rows])
    return Report([table, _goals(rows)], lambda path: _draw(rows, path))


def _cells(row: Row) -> list[str]:
    deviation = (sum((share - 1) ** 2 for share in row.shares) / row.size) ** 0.5
    shares = [f"{value:.2f}" for value in (row.shares[0], row.shares[-1], deviation)]
    moved = (row.ring_more, row.ring_less, 1 / row.size, row.modulo_more, row.modulo_less)
    return [str(row.size), *shares, *(f"{value:.2%}" for value in moved)]


def _goals(rows: list[Row]) -> Section:
    most = max(max(row.ring_more, row.ring_less) * row.size for row in rows)
    least = min(min(row.modulo_more, row.modulo_less) for row in rows)
    figures = [
        Figure("the ring moves at most, in units of 1/N of the keys", most, at_most=MOST_MOVED),
        Figure("modulo hashing moves at least, of all keys", 100 * least, "%"),
    ]
    return Section("one endpoint more or less", figures)


def _draw(rows: list[Row], path: Path) -> None:
    figure, (shares, moved) = panels(["share of the keys, 1 = 1/N", "keys that move when one endpoint is added"], 2)
    sizes = [row.size for row in rows]
    shares.boxplot([row.shares for row in rows], tick_labels=[str(size) for size in sizes], whis=(0, 100))
    shares.set_xlabel("endpoints; the whiskers are the least and the most")
    moved.plot(sizes, [row.modulo_more for row in rows], "o-", color=COLOURS[0], label="modulo")
    moved.plot(sizes, [row.ring_more for row in rows], "o-", color=OURS, label="ring")
    moved.plot(sizes, [1 / (row.size + 1) for row in rows], "--", color=BLACK, label="1/(N+1)")
    moved.set(xscale="log", yscale="log", xlabel="endpoints")
    moved.legend(fontsize=8)
    save(figure, path)
