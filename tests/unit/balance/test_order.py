"""Orders of preference that are no policy's."""

from collections import Counter
from random import Random

from slb.balance.order import second_choice, second_choices
from tests.unit.balance.upstreams import name, upstream, upstreams


def test_second_choices_begin_with_the_least_loaded() -> None:
    busy = (upstream("a", inflight=2), upstream("b"), upstream("c", inflight=1))
    assert [name(each) for each in second_choices(busy, Random(1))] == ["b", "c", "a"]


def test_equals_come_first_alike_often_as_they_are_chosen() -> None:
    rng, three = Random(1), upstreams("abc")
    firsts = Counter(second_choices(three, rng)[0].member for _ in range(3000))
    chosen = Counter(second_choice(three, rng).member for _ in range(3000))
    assert all(900 < counts[each.member] < 1100 for counts in (firsts, chosen) for each in three)
