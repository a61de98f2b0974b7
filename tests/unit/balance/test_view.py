"""What a policy picks from, and what a request leaves out of it."""

from random import Random

from slb.balance.view import RouteView
from tests.unit.balance.upstreams import upstream, upstreams


def test_a_further_attempt_leaves_out_those_that_failed_and_in_a_panic_the_ill_as_long_as_any_is_left() -> None:
    a, b, c = found = upstreams("abc")
    calm, panic = RouteView(found), RouteView(found, ill=frozenset((b, c)))
    assert calm.avoiding(frozenset((a,)), (a,)) == {a}
    assert panic.avoiding(frozenset(), ()) == frozenset()
    assert panic.avoiding(frozenset((b,)), (b,)) == {b, c}
    assert panic.left(panic.avoiding(frozenset((a,)), (a,))) == (b, c)
    assert panic.left(panic.avoiding(frozenset((a, b)), (a, b))) == (c,)


def test_a_further_attempt_goes_to_one_on_probation_only_where_no_other_is_left() -> None:
    a, b, c = found = upstreams("abc")
    view = RouteView(found)
    b.on_probation = True
    assert view.left(view.avoiding(frozenset(), ())) == (a, b, c)
    assert view.left(view.avoiding(frozenset((a,)), (a,))) == (c,)
    assert view.left(view.avoiding(frozenset((a, c)), (a, c))) == (b,)


def test_a_further_attempt_goes_to_another_node_first() -> None:
    nodes = {"a": "n1", "b": "n1", "c": "n2", "d": ""}
    a, b, c, d = found = tuple(upstream(name, node=node) for name, node in nodes.items())
    view = RouteView(found)
    assert view.left(view.avoiding(frozenset((a,)), (a,))) == (c, d)
    assert view.left(view.avoiding(frozenset((a, c)), (a, c))) == (d,)
    assert view.left(view.avoiding(frozenset((a, c, d)), (a, c, d))) == (b,), "there is no other"
    assert view.left(view.avoiding(frozenset((d,)), (d,))) == (a, b, c), "of no node: none shares it"
    assert view.avoiding(frozenset((a,)), (a,), frozenset((c, d))) == {a}
    assert view.left(view.avoiding(frozenset((a, c)), (c,))) == (b, d), "one without a free connection did not fail"
    c.on_probation = d.on_probation = True
    assert view.left(view.avoiding(frozenset((a,)), (a,))) == (b,)


def test_with_all_of_them_left_out_none_is_left() -> None:
    found = upstreams("ab")
    view = RouteView(found)
    assert view.left(view.avoiding(frozenset(found), found)) == ()
    assert RouteView(()).left(None) == ()


def test_where_all_upstreams_are_permitted_the_view_is_the_same() -> None:
    a, b, c = found = upstreams("abc")
    view = RouteView(found, ill=frozenset((a, b)))
    assert view.permitting(found) is view
    some = view.permitting((a, c))
    assert (some.upstreams, some.ill) == ((a, c), frozenset((a,)))


def test_of_those_permitted_the_one_here_longest_does_not_fade() -> None:
    old, new, newer = found = (upstream("a"), upstream("b", seen=0.0), upstream("c", seen=5.0))
    view = RouteView(found, fade_in=10.0)
    assert set(view.deprioritized(0.0, Random(1))) == {new, newer}
    assert view.permitting((new, newer)).deprioritized(0.0, Random(1)) != (new, newer)
    assert view.permitting((old,)).fading_until == 0.0


def test_once_all_have_faded_in_none_is_left_out_and_that_is_known_without_the_time() -> None:
    view = RouteView((upstream("a"), upstream("b", seen=0.0)), fade_in=10.0)
    assert view.fading_until == 10.0
    assert view.deprioritized(10.0, Random(1)) == ()
    assert view.fading_until == 0.0
