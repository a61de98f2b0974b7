"""Ids of instances that have died are remembered until a time."""

from slb.control.departed import Departed


def test_an_id_is_remembered_until_its_time_is_over_and_a_later_time_counts() -> None:
    departed = Departed()
    departed.add(["a", "b"], until=10.0)
    assert departed.at(9.0) == {"a", "b"}
    departed.add(["b"], until=12.0)
    assert departed.at(10.0) == {"b"}
    assert departed.at(12.0) == set()
