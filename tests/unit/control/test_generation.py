"""What is served while Redis lacks something that was known: all of both, and of each field what Redis has."""

from slb.control.generation import joined, with_fields
from slb.model import RouteRecord


def test_a_field_that_redis_has_is_not_overwritten_by_what_was_known() -> None:
    assert with_fields({"a": "old", "b": "old"}, {"a": "new", "c": "new"}) == {"a": "new", "b": "old", "c": "new"}
    assert with_fields({"a": "old"}, None) == {"a": "old"}


def test_a_route_has_the_members_of_both_and_newer_settings_before_those_that_were_known() -> None:
    good = RouteRecord(frozenset({"a:1", "b:1"}), {"retries": "1", "policy": "random"})
    now = RouteRecord(frozenset({"c:1"}), {"retries": "2"})
    both = RouteRecord(frozenset({"a:1", "b:1", "c:1"}), {"retries": "2", "policy": "random"})
    assert joined(good, now) == both
    assert joined(good, None) is good
