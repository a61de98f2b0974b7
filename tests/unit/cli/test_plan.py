"""What `slb apply` has to do: the exact calls, and that they lead where the document says, and no further."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any
from urllib.parse import unquote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slb.cli.document import ATTRIBUTES, Document, Route, is_below, without_defaults
from slb.cli.plan import Change, Found, FoundRoute, exported, plan
from slb.errors import ConfigError
from slb.job import route_of
from slb.quotas import Limits
from tests.support.fuzzing import examples

A, B, C = "10.0.0.1:80", "10.0.0.2:80", "10.0.0.10:80"
FLEET = Found(
    {
        "/p": FoundRoute({"policy": "p2c", "retries": 2}, {A: "static", B: "lease", C: "discovered"}),
        "/old": FoundRoute({"retries": 2}, {A: "static"}),
        "/theirs": FoundRoute({}, {B: "lease"}),
        "/mixed": FoundRoute({"retries": 2}, {A: "static", B: "lease"}),
    },
    {A: {"weight": 3, "zone": "z1"}},
    {"flux": {"max_retries": 3, "endpoint": "/make", "paused": True}, "zimg": {"endpoint": "/make"}, "plain": {}},
    {"gpt": Limits(600, 3, 2, 50)},
)


def members(*named: str) -> frozenset[str]:
    return frozenset(named)


def lines(changes: Sequence[Change]) -> list[str]:
    return [line for change in changes for line in change.lines]


def calls(changes: Sequence[Change]) -> list[tuple[str, str, Any]]:
    return [change[1:] for change in changes]


def test_settings_are_changed_added_and_reset_in_one_call_and_others_are_not_sent() -> None:
    wanted = Document(routes={"/p": Route({"policy": "p2c", "retries": 3, "strip_prefix": True})})
    assert plan(FLEET, wanted) == [
        Change(
            ('~ routes."/p": retries = 3 (was 2)', '+ routes."/p": strip_prefix = true'),
            *("PATCH", "/routes/p", {"retries": 3, "strip_prefix": True}),
        )
    ]
    assert plan(FLEET, Document(routes={"/p": Route({"retries": 2})})) == [
        Change(('- routes."/p": policy (was "p2c")',), "PATCH", "/routes/p", {"policy": None})
    ]


def test_members_join_before_any_leaves_and_those_of_others_stay() -> None:
    wanted = Document(
        routes={
            "/": Route({}, members(A)),
            "/p": Route({"policy": "p2c", "retries": 2}, members("h:1")),
            "/old": Route({"retries": 2}),
        }
    )
    assert calls(plan(FLEET, wanted)) == [
        ("POST", "/register", {"path": "/", "target": A}),
        ("POST", "/register", {"path": "/p", "target": "h:1"}),
        ("DELETE", "/register", {"path": "/p", "target": A}),
    ]


def test_a_member_that_is_named_is_one_for_good_from_then_on() -> None:
    wanted = Document(routes={"/p": Route(FLEET.routes["/p"].settings, members(A, B, C))})
    assert plan(FLEET, wanted) == [
        Change(
            (f'+ routes."/p": member {B} (for good, not by a lease)',),
            *("POST", "/register", {"path": "/p", "target": B}),
        ),
        Change((f'+ routes."/p": member {C} (for good)',), "POST", "/register", {"path": "/p", "target": C}),
    ]


def test_attributes_are_set_once_and_reset_to_their_default() -> None:
    kept = {path: Route(route.settings, route.static) for path, route in FLEET.routes.items()}
    assert plan(FLEET, Document(routes=kept, upstreams={A: {"weight": 3, "slots": 4}})) == [
        Change(
            (f'+ upstreams."{A}": slots = 4', f'- upstreams."{A}": zone (was "z1")'),
            *("POST", "/register", {"path": "/mixed", "target": A, "slots": 4, "zone": ""}),
        )
    ]
    assert plan(FLEET, Document(routes=kept)) == [], "without the table they are left alone"


def test_a_new_member_comes_with_its_attributes() -> None:
    wanted = Document("/n", {"/n": Route({}, members("h:1"))}, {"h:1": {"weight": 2}})
    body = {"path": "/n", "target": "h:1", "weight": 2}
    assert plan(FLEET, wanted) == [
        Change(('+ routes."/n": member h:1', '+ upstreams."h:1": weight = 2'), "POST", "/register", body)
    ]


def test_attributes_that_hold_outside_the_prefix_too_are_refused() -> None:
    wanted = Document("/p", {"/p": Route({"policy": "p2c", "retries": 2}, members(A))}, {A: {"weight": 9}})
    with pytest.raises(ConfigError, match=f'upstreams."{A}": weight, zone would change for /mixed too'):
        plan(FLEET, wanted)
    same = replace(wanted, upstreams={A: {"weight": 3, "zone": "z1"}})
    assert plan(FLEET, same) == []


def test_of_a_model_what_gpus_and_operators_set_stays_unless_it_is_named() -> None:
    def of(fields: Mapping[str, Any]) -> list[tuple[str, str, Any]]:
        return calls(plan(FLEET, Document(models={"flux": fields})))

    path = "/admin/model-configs/flux"
    assert of({"max_retries": 3}) == []
    assert of({}) == [("PATCH", path, {"max_retries": None})]
    assert of({"max_retries": 3, "endpoint": "/make"}) == []
    assert of({"max_retries": 3, "endpoint": "/generate"}) == [("PATCH", path, {"endpoint": None})]
    assert plan(FLEET, Document(models={"new/one": {"max_retries": 1}, "bare": {}})) == [
        Change(('+ models."bare"',), "PUT", "/admin/model-configs/bare", {}),
        Change(('+ models."new/one": max_retries = 1',), "PUT", "/admin/model-configs/new/one", {"max_retries": 1}),
    ]


def test_a_bucket_follows_the_limit_unless_it_is_named() -> None:
    def of(found: Limits, wanted: Limits) -> Any:
        changes = plan(Found(limits={"m": found}), Document(limits={"m": wanted}))
        return [(change.method, change.path, change.body) for change in changes]

    def put(**body: Any) -> list[tuple[str, str, Any]]:
        return [("PUT", "/models/m", body)]

    assert of(Limits(600, 3), Limits(600, 3, burst=100)) == [], "it is as large anyway"
    assert of(Limits(600, 3), Limits(1200, 3)) == put(max_tokens_per_minute=1200, burst=None)
    assert of(Limits(600, 3, burst=50), Limits(1200, 3, burst=50)) == put(max_tokens_per_minute=1200, burst=50)
    assert of(Limits(600, 3, 2, 50), Limits(600, 3)) == put(weight=1, burst=None)
    assert of(Limits(600, 3), Limits(600, 4)) == put(max_concurrent_requests=4)
    changes = plan(Found(limits={}), Document(limits={"m": Limits(600, 3)}))
    assert changes[0].body == {"max_tokens_per_minute": 600, "max_concurrent_requests": 3, "burst": None}


def test_without_prune_nothing_goes_that_the_document_does_not_name() -> None:
    assert plan(FLEET, Document("/", {}, {}, {}, {})) == []


def test_prune_removes_what_is_missing_and_leaves_what_others_registered() -> None:
    changes = plan(FLEET, Document("/", {"/p": Route(FLEET.routes["/p"].settings)}, {}, {}, {}), prune=True)
    assert calls(changes) == [
        ("DELETE", "/register", {"path": "/mixed", "target": A}),
        ("PUT", "/routes/mixed", {}),
        ("DELETE", "/routes/old", None),
        ("PATCH", "/admin/model-configs/flux", {"max_retries": None}),
        ("DELETE", "/admin/model-configs/plain", None),
        ("DELETE", "/models/gpt", None),
    ]
    assert lines(changes) == [
        f'- routes."/mixed": member {A}',
        '- routes."/mixed": retries (was 2)',
        '- routes."/old"',
        '- models."flux"',
        '- models."plain"',
        '- limits."gpt"',
    ]


def test_prune_goes_no_further_than_the_prefix_and_the_tables_that_are_there() -> None:
    assert plan(FLEET, Document("/old", {}), prune=True) == [Change(('- routes."/old"',), "DELETE", "/routes/old")]
    assert plan(FLEET, Document("/jobs", models={}), prune=True) == plan(FLEET, Document(models={}), prune=True)
    assert plan(FLEET, Document("/p", {"/p": Route({}, None)}, None, {}, {}), prune=True) == [
        Change(
            ('- routes."/p": policy (was "p2c")', '- routes."/p": retries (was 2)'),
            *("PATCH", "/routes/p", {"policy": None, "retries": None}),
        )
    ]
    assert plan(FLEET, Document(), prune=True) == []


def test_settings_that_cannot_be_used_go_with_their_route_alone() -> None:
    found = Found({"/p": FoundRoute({}, {B: "lease"}, ("retries = many",))})
    assert plan(found, Document(routes={"/p": Route({})}), prune=True) == []
    assert calls(plan(found, Document(routes={}), prune=True)) == [("PUT", "/routes/p", {})]
    assert plan(found, exported(found, "/", "static"), prune=True) == []


@pytest.mark.parametrize(("which", "kept"), [("static", members(A)), ("all", members(A, B, C)), ("none", None)])
def test_an_export_has_the_members_that_were_asked_for(which: str, kept: frozenset[str] | None) -> None:
    document = exported(FLEET, "/p", which)
    assert document.routes == {"/p": Route({"policy": "p2c", "retries": 2}, kept)}
    assert document.upstreams == (None if which == "none" else {A: {"weight": 3, "zone": "z1"}})
    assert document.models == {}
    every = exported(FLEET, "/", which)
    assert every.models == {
        "flux": {"max_retries": 3, "endpoint": "/make"},
        "zimg": {"endpoint": "/make"},
        "plain": {},
    }
    assert ("/theirs" in (every.routes or {})) == (which != "static")
    assert exported(FLEET, "/", which, with_routes=False).routes is None


# -- the API, as far as a plan goes


class Fleet:
    """Does what the API does with the calls of a plan."""

    def __init__(self, found: Found) -> None:
        self.routes = {
            path: FoundRoute(dict(each.settings), dict(each.members)) for path, each in found.routes.items()
        }
        self.upstreams = {member: dict(each) for member, each in found.upstreams.items()}
        self.models = {model: dict(each) for model, each in (found.models or {}).items()}
        self.limits = dict(found.limits or {})

    @property
    def found(self) -> Found:
        routes = {path: each for path, each in self.routes.items() if each.settings or each.members}
        used = {member for each in routes.values() for member in each.members}
        upstreams = {member: each for member, each in self.upstreams.items() if member in used}
        return Found(routes, upstreams, self.models, self.limits)

    def call(self, change: Change) -> None:
        _, method, path, body = change
        if path == "/register":
            self._register(method, body)
        elif path.startswith("/routes/"):
            self._route(method, path.removeprefix("/routes"), body)
        elif path.startswith("/admin/model-configs/"):
            self._model(method, unquote(path.removeprefix("/admin/model-configs/")), body)
        else:
            self._limit(method, unquote(path.removeprefix("/models/")), body)

    def _register(self, method: str, body: Any) -> None:
        path, member = body["path"], body["target"]
        route = self.routes.setdefault(path, FoundRoute({}, {}))
        everywhere: dict[str, Any] = {**route.members}
        if method == "POST":
            everywhere[member] = "static"
            given = {name: each for name, each in body.items() if name in ATTRIBUTES}
            self.upstreams[member] = without_defaults({**self.upstreams.get(member, {}), **given})
        else:
            del everywhere[member]
        self.routes[path] = FoundRoute(route.settings, everywhere)
        if not any(member in each.members for each in self.routes.values()):
            self.upstreams.pop(member, None)

    def _route(self, method: str, path: str, body: Any) -> None:
        if method == "DELETE":
            gone = self.routes.pop(path)
            assert set(gone.members.values()) <= {"static"}, "nothing of others is taken out"
            return
        route = self.routes.get(path, FoundRoute({}, {}))
        self.routes[path] = FoundRoute(_patched({} if method == "PUT" else route.settings, body), route.members)

    def _model(self, method: str, model: str, body: Any) -> None:
        if method == "DELETE":
            del self.models[model]
        elif method == "PATCH":
            self.models[model] = _patched(self.models[model], body)
        else:
            assert model not in self.models
            self.models[model] = body

    def _limit(self, method: str, model: str, body: Any) -> None:
        if method == "DELETE":
            del self.limits[model]
            return
        have = self.limits.get(model)
        made = Limits(**{**(asdict(have) if have else {}), **body})
        is_set = made.burst is not None and made.burst != replace(made, burst=None).bucket  # as the answer shows it
        self.limits[model] = made if is_set else replace(made, burst=None)


def _patched(have: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    return {name: each for name, each in {**have, **changes}.items() if each is not None}


PATHS = st.sampled_from(["/", "/a", "/a/b", "/ab", "/jobs/flux"])
MEMBERS = st.sampled_from([A, B, C, "h:1"])
SETTINGS = st.dictionaries(
    st.sampled_from(["retries", "queue_limit", "max_inflight"]), st.integers(1, 3), max_size=3
)
ORIGINS = st.dictionaries(MEMBERS, st.sampled_from(["static", "static", "lease", "discovered"]))
FOUND_ROUTE = st.builds(FoundRoute, SETTINGS, ORIGINS).filter(lambda route: bool(route.settings or route.members))
ATTRIBUTE = st.fixed_dictionaries({}, optional={"weight": st.integers(2, 3), "zone": st.sampled_from(["a", "b"])})
MODEL_FIELDS = {"max_retries": st.integers(1, 3), "endpoint": st.sampled_from(["/x", "/y"])}
FOUND_MODEL = st.fixed_dictionaries({}, optional={**MODEL_FIELDS, "paused": st.just(True)})
WANTED_MODEL = st.fixed_dictionaries({}, optional=MODEL_FIELDS)
MODELS = st.sampled_from(["flux", "b", "c"])
LIMITS = st.builds(
    Limits, st.sampled_from([60, 120]), st.integers(1, 2), st.integers(1, 2), st.sampled_from([None, 15])
)
FLEETS = st.builds(
    lambda routes, attributes, models, limits: Fleet(Found(routes, attributes, models, limits)).found,
    st.dictionaries(PATHS, FOUND_ROUTE),
    st.dictionaries(MEMBERS, ATTRIBUTE),
    st.dictionaries(MODELS, FOUND_MODEL),
    st.dictionaries(MODELS, LIMITS),
)


@st.composite
def documents(draw: st.DrawFn) -> Document:
    wanted = st.builds(Route, SETTINGS, st.none() | st.frozensets(MEMBERS))
    routes = draw(st.none() | st.dictionaries(PATHS, wanted))
    named = {member for route in (routes or {}).values() for member in route.members or ()}
    upstreams = draw(st.none() | st.fixed_dictionaries(dict.fromkeys(sorted(named), ATTRIBUTE)))
    models, limits = (
        draw(st.none() | st.dictionaries(MODELS, WANTED_MODEL)),
        draw(st.none() | st.dictionaries(MODELS, LIMITS)),
    )
    return Document("/", routes, upstreams, models, limits)


def after(found: Found, changes: Sequence[Change]) -> Found:
    fleet = Fleet(found)
    for change in changes:
        fleet.call(change)
    return fleet.found


@settings(max_examples=examples(1000), deadline=None)
@given(FLEETS, documents(), st.booleans())
def test_what_is_done_leads_to_the_document_and_a_second_time_does_nothing(
    found: Found, wanted: Document, prune: bool
) -> None:
    changes = plan(found, wanted, prune)
    made = after(found, changes)
    assert plan(made, wanted, prune) == []
    for path, route in (wanted.routes or {}).items():
        there = made.routes.get(path, FoundRoute())
        assert there.settings == route.settings
        assert route.members in (None, there.static)
        theirs = {
            member for member, origin in found.routes.get(path, FoundRoute()).members.items() if origin != "static"
        }
        assert theirs <= there.members.keys()
    for member, attributes in (wanted.upstreams or {}).items():
        assert made.upstreams.get(member, {}) == attributes
    for model, fields in (wanted.models or {}).items():
        assert fields.items() <= (made.models or {})[model].items()
    assert {each.bucket for each in (wanted.limits or {}).values()} <= {
        each.bucket for each in (made.limits or {}).values()
    }
    if not prune:
        assert found.routes.keys() - {path for path, each in found.routes.items() if not each.settings} <= (
            made.routes.keys() | (wanted.routes or {}).keys()
        )


@settings(max_examples=examples(1000), deadline=None)
@given(FLEETS, FLEETS, st.sampled_from(["/", "/a", "/jobs"]), st.booleans())
def test_one_fleet_becomes_another_below_the_prefix_and_nowhere_else(
    found: Found, other: Found, prefix: str, prune: bool
) -> None:
    wanted = exported(other, prefix, "static")
    try:
        changes = plan(found, wanted, prune)
    except ConfigError:
        assert prefix != "/", "attributes that are shared with a route outside"
        return
    made = after(found, changes)
    assert plan(made, wanted, prune) == []
    outside = {path: route for path, route in found.routes.items() if not is_below(path, prefix)}
    assert {path: made.routes.get(path) for path in outside} == outside
    for member, attributes in found.upstreams.items():
        if any(member in route.members for route in outside.values()):
            assert made.upstreams.get(member) == attributes
    below = {model for model in (found.models or {}) if not is_below(route_of(model), prefix)}
    assert all((made.models or {})[model] == (found.models or {})[model] for model in below)
    if prune:
        again = exported(made, prefix, "static")
        assert {path: each.settings for path, each in (again.routes or {}).items() if each.settings} == {
            path: each.settings for path, each in (wanted.routes or {}).items() if each.settings
        }


@settings(max_examples=examples(500), deadline=None)
@given(FLEETS, st.sampled_from(["/", "/a"]), st.sampled_from(["static", "none"]))
def test_what_was_exported_is_there_already(found: Found, prefix: str, which: str) -> None:
    assert plan(found, exported(found, prefix, which), prune=True) == []
