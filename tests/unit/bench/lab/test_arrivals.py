"""Keys and batches."""

from collections import Counter
from random import Random

import pytest

from bench.lab.model import Arrivals, Client, Schedule, Work, ZipfKeys
from tests.unit.bench.lab.rig import OneServer


class Noting(Client):
    """A client that only notes when what is sent."""

    def __init__(self, schedule: Schedule) -> None:
        self.sent: list[tuple[float, bytes]] = []
        self._schedule = schedule

    def send(self, key: bytes) -> None:
        self.sent.append((self._schedule.now, key))


def test_the_k_th_key_is_drawn_in_proportion_to_one_over_k() -> None:
    """Within five standard deviations."""
    keys = ZipfKeys(100, 1.0, Random(1))
    drawn, all_drawn = Counter(keys.draw() for _ in range(50_000)), 50_000
    for rank in (1, 2, 10, 100):
        share = keys.share(rank)
        spread = (all_drawn * share * (1 - share)) ** 0.5
        assert abs(drawn[keys.keys[rank - 1]] - all_drawn * share) < 5 * spread
    assert keys.share(1) == pytest.approx(2 * keys.share(2)) == pytest.approx(100 * keys.share(100))


def test_a_batch_goes_out_at_one_instant_from_one_client_and_no_two_keys_are_alike() -> None:
    schedule, rng = Schedule(), Random(5)
    clients = [Noting(schedule) for _ in range(3)]
    Arrivals(schedule, clients, ZipfKeys(10, 1.0, rng), rate=1000.0, fan_out=4, rng=rng).begin(4.0)
    schedule.drain()
    for client in clients:
        at = Counter(when for when, _ in client.sent)
        assert set(at.values()) == {4}
        assert len(set(client.sent)) == len(client.sent)
        assert 200 < len(at) < 470  # a third of 1,000 batches, within nine standard deviations


def test_none_comes_after_its_end() -> None:
    schedule, rng = Schedule(), Random(6)
    client = Noting(schedule)
    Arrivals(schedule, [client], ZipfKeys(10, 1.0, rng), rate=100.0, fan_out=1, rng=rng).begin(2.0)
    schedule.drain()
    assert client.sent
    assert max(when for when, _ in client.sent) <= 2.0


def test_poisson_arrivals_vary_as_much_as_they_are_many() -> None:
    """The variance of a Poisson count is its mean; of 400 counts the ratio is 1 within 0.35, five deviations."""
    lab = OneServer(11, rate=50.0, keys=5, capacity=5, work=Work())
    lab.run(400.0)
    counts = [lab.measures.second(number).requests for number in range(400)]
    average = sum(counts) / len(counts)
    variance = sum((count - average) ** 2 for count in counts) / len(counts)
    assert average == pytest.approx(50, rel=0.05)
    assert variance / average == pytest.approx(1.0, abs=0.35)


def test_batches_of_more_keys_than_there_are_are_refused() -> None:
    rng = Random(1)
    with pytest.raises(ValueError, match="batches of 11 different keys of 10"):
        Arrivals(Schedule(), [], ZipfKeys(10, 1.0, rng), rate=1.0, fan_out=11, rng=rng)
