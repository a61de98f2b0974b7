"""Events that are told of now and then."""

from slb.observe.seldom import Seldom


def test_the_first_is_told_and_then_all_of_a_period_together() -> None:
    now = 5.0
    seldom = Seldom(lambda: now, 10.0)
    assert [seldom.count() for _ in range(3)] == [1, 0, 0]
    now = 15.0
    assert [seldom.count() for _ in range(2)] == [3, 0]
    now = 100.0
    assert seldom.count() == 2
