"""A record made into a route."""

from random import Random

from slb.balance.policy import Means
from slb.config import Settings
from slb.model import RouteRecord
from slb.routing.effective_settings import EffectiveSettings, Judged
from slb.routing.live_upstreams import Attributes, UpstreamsDraft
from slb.routing.route_maker import RouteMaker
from slb.routing.table import Route
from tests.unit.routing.mirror_rig import A, B, C, at_once, record


def maker(**defaults: object) -> RouteMaker:
    settings_for = Settings.model_validate({"defaults": defaults}).route_settings
    return RouteMaker(settings_for, EffectiveSettings(lambda: 0.0), Means(Random(1), lambda: 0.0), lambda: 0.0)


def route(
    maker: RouteMaker,
    new: RouteRecord,
    old: Route | None = None,
    old_record: RouteRecord | None = None,
    attributes: Attributes | None = None,
) -> Route:
    draft = UpstreamsDraft({}, attributes or {}, set(), 0.0)
    return at_once(maker.make("/p", new, lambda: old, old_record, draft, Judged()))


def test_a_route_has_all_members_in_order_and_serves_with_those_that_do_not_drain() -> None:
    made = route(maker(), record(C, A, B), attributes={B: {"drain": "1"}})
    assert [each.member for each in made.members] == [A, B, C]
    assert [each.member for each in made.upstreams] == [A, C]


def test_thousands_of_members_are_put_in_order_in_slices() -> None:
    many = [f"10.0.{number // 250}.{number % 250}:80" for number in range(3000)]
    draft = UpstreamsDraft({}, {}, set(), 0.0)
    slices = maker().make("/p", record(*many), lambda: None, None, draft, Judged())
    assert sum(1 for _ in slices) == 3 + 60
    assert [each.member for each in route(maker(), record(*many)).members] == sorted(many)


def test_a_policy_goes_on_while_it_is_the_same() -> None:
    made_by = maker()
    before = record(A, policy="p2c")
    old = route(made_by, before)
    assert route(made_by, record(A, B, policy="p2c", retries="3"), old, before).policy is old.policy
    other = route(made_by, record(A, policy="least_local"), old, before)
    assert type(other.policy) is not type(old.policy)


def test_a_setting_at_fault_holds_on_as_it_was_and_is_noted() -> None:
    made_by, judged = maker(), Judged()
    before, after = record(A, retries="3"), record(A, retries="many")
    old = route(made_by, before)
    draft = UpstreamsDraft({}, {}, set(), 0.0)
    assert at_once(made_by.make("/p", after, lambda: old, before, draft, judged)).settings.retries == 3
    faults, standing = judged["/p"]
    assert (len(faults), standing) == (1, {"retries": "3"})


def test_a_route_is_remade_only_where_other_settings_make_it_another() -> None:
    made_by, written = maker(), record(A, retries="3")
    old = route(made_by, written)
    made_by.settings_for = maker(retries=5).settings_for
    assert made_by.remake(old, written) is old
    made_by.settings_for = maker(queue_limit=7).settings_for
    remade = made_by.remake(old, written)
    assert (remade.settings.queue_limit, remade.settings.retries) == (7, 3)
    assert (remade.members, remade.policy) == (old.members, old.policy)
