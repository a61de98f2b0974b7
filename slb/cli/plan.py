"""What has to be changed so that a document holds: calls of the API, and a line for each difference. Pure.

The order is such that no step takes away what a later one needs: what is new comes first, members leave once all
others have joined, since the attributes of an upstream go with the last route that names it, and what the document
does not name at all goes last."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import quote

from slb.cli.document import ATTRIBUTES, Document, Route, is_below, limit_fields, without_defaults, written
from slb.control.origins import Origin
from slb.errors import ConfigError
from slb.job import ModelConfig, route_of
from slb.names import natural
from slb.quotas import Limits

_LEFT_TO_OTHERS = frozenset({"endpoint", "paused"})
"""Of a model: GPUs set the one by their registration, operators the other for a while."""


class Change(NamedTuple):
    """One call of the API. `lines` say what it does: `+` something that was not there, `-` something that goes, `~`
    another value."""

    lines: tuple[str, ...]
    method: str
    path: str
    body: Any = None


@dataclass(frozen=True, slots=True)
class FoundRoute:
    """`settings` in the form they are typed in; `faults`: why others that are written cannot be used."""

    settings: Mapping[str, Any] = field(default_factory=dict)
    members: Mapping[str, Origin] = field(default_factory=dict)
    faults: tuple[str, ...] = ()

    @property
    def static(self) -> frozenset[str]:
        """Members that are there for good: those with a lease, and those of discovery, are others' to take out."""
        return frozenset(member for member, origin in self.members.items() if origin == "static")


@dataclass(frozen=True, slots=True)
class Found:
    """What is set on the fleet. `models` and `limits` are None where they were not asked for. A limit's `burst` is
    None where it is what would hold without it."""

    routes: Mapping[str, FoundRoute] = field(default_factory=dict)
    upstreams: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    models: Mapping[str, Mapping[str, Any]] | None = None
    limits: Mapping[str, Limits] | None = None


def exported(found: Found, prefix: str, members: str, with_routes: bool = True) -> Document:
    """The document of what is at `prefix` and below. `members`: `all`, `static` or `none`."""
    below = {path: route for path, route in found.routes.items() if is_below(path, prefix)}
    if members == "static":  # of a route that is others' alone, there is nothing to keep
        below = {path: each for path, each in below.items() if each.settings or each.static or each.faults}
    routes = {path: Route(each.settings, _kept_members(each, members)) for path, each in below.items()}
    named = {member for route in routes.values() for member in route.members or ()}
    attributes = {member: without_defaults(each) for member, each in found.upstreams.items() if member in named}
    models = None if found.models is None else {name: _shown_model(each) for name, each in found.models.items()}
    return Document(
        prefix,
        routes if with_routes else None,
        {member: each for member, each in attributes.items() if each}
        if with_routes and members != "none"
        else None,
        None
        if models is None
        else {name: each for name, each in models.items() if is_below(route_of(name), prefix)},
        found.limits if prefix == "/" else None,
    )


def _kept_members(route: FoundRoute, members: str) -> frozenset[str] | None:
    if members == "none":
        return None
    return frozenset(route.members) if members == "all" else route.static


def _shown_model(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: each for name, each in fields.items() if name != "paused"}


def plan(found: Found, wanted: Document, prune: bool = False) -> list[Change]:
    """What is to be done, in this order. `prune`: also without what is below the document's prefix, in one of its
    tables, and not in the document. Raises ConfigError where that would change what is outside the prefix."""
    return [
        *_limits_set(found.limits or {}, wanted.limits or {}),
        *_models_set(found.models or {}, wanted.models or {}),
        *_settings(found, wanted),
        *_joins(found, wanted),
        *_leaves(found, wanted),
        *(_pruned(found, wanted) if prune else ()),
    ]


# -- routes


def _settings(found: Found, wanted: Document) -> Iterator[Change]:
    for path, route in _in_order(wanted.routes or {}):
        have = found.routes.get(path, FoundRoute()).settings
        differing, lines = _differences(f"routes.{written(path)}", have, route.settings)
        if differing:
            yield Change(lines, "PATCH", _route(path), differing)


def _joins(found: Found, wanted: Document) -> Iterator[Change]:
    """Members that are new, and attributes of any. Attributes are set by a registration, not by a PATCH of the
    upstream: a token that may register at all the routes of an upstream may do that, and needs no `admin`."""
    to_set = _attributes(found, wanted)
    for path, route in _in_order(wanted.routes or {}):
        there = found.routes.get(path, FoundRoute())
        for member in sorted(route.members or (), key=natural):
            origin = there.members.get(member)
            attributes, lines = to_set.pop(member, ({}, ()))
            if origin == "static" and not attributes:
                continue
            note = {"lease": " (for good, not by a lease)", "discovered": " (for good)"}.get(origin or "", "")
            joins = () if origin == "static" else (f"+ routes.{written(path)}: member {member}{note}",)
            yield Change((*joins, *lines), "POST", "/register", {"path": path, "target": member, **attributes})


def _attributes(found: Found, wanted: Document) -> dict[str, tuple[dict[str, Any], tuple[str, ...]]]:
    """By member, the attributes that are other than they should be, and their lines."""
    if wanted.upstreams is None:
        return {}
    to_set = {}
    named = {member for route in (wanted.routes or {}).values() for member in route.members or ()}
    for member in sorted(named):
        used = [path for path, route in found.routes.items() if member in route.members]
        have = without_defaults(found.upstreams.get(member, {}))
        differing, lines = _differences(f"upstreams.{written(member)}", have, wanted.upstreams.get(member, {}))
        if not differing:
            continue
        if outside := sorted(path for path in used if not is_below(path, wanted.prefix)):
            what = f"upstreams.{written(member)}: {', '.join(sorted(differing))} would change for {outside[0]} too"
            raise ConfigError(f"{what}, which is not below prefix, {wanted.prefix}")
        to_set[member] = (
            {name: ATTRIBUTES[name] if each is None else each for name, each in differing.items()},
            lines,
        )
    return to_set


def _leaves(found: Found, wanted: Document) -> Iterator[Change]:
    for path, route in _in_order(wanted.routes or {}):
        if route.members is not None:
            yield from _left(path, found.routes.get(path, FoundRoute()).static - route.members)


def _left(path: str, members: frozenset[str]) -> Iterator[Change]:
    for member in sorted(members, key=natural):
        line = f"- routes.{written(path)}: member {member}"
        yield Change((line,), "DELETE", "/register", {"path": path, "target": member})


# -- models of either kind


def _models_set(
    found: Mapping[str, Mapping[str, Any]], wanted: Mapping[str, Mapping[str, Any]]
) -> Iterator[Change]:
    for model, fields in _in_order(wanted):
        place, path = f"models.{written(model)}", _config(model)
        if model not in found:
            lines = _differences(place, {}, fields)[1]
            yield Change(lines or (f"+ {place}",), "PUT", path, dict(fields))
            continue
        left = _LEFT_TO_OTHERS - fields.keys()
        have = {name: each for name, each in found[model].items() if name not in left}
        # An endpoint that is named may be at its default, which no answer has.
        want = {name: each for name, each in fields.items() if each != _DEFAULT_ENDPOINT or name != "endpoint"}
        differing, lines = _differences(place, have, want)
        if differing:
            yield Change(lines, "PATCH", path, differing)


_DEFAULT_ENDPOINT = ModelConfig().endpoint


def _limits_set(found: Mapping[str, Limits], wanted: Mapping[str, Limits]) -> Iterator[Change]:
    for model, limits in _in_order(wanted):
        have = found.get(model)
        if have is not None and (have.bucket, have.weight) == (limits.bucket, limits.weight):
            same = (have.max_tokens_per_minute, have.max_concurrent_requests)
            if same == (limits.max_tokens_per_minute, limits.max_concurrent_requests):
                continue
        differing, lines = _differences(
            f"limits.{written(model)}", limit_fields(have) if have else {}, limit_fields(limits)
        )
        if "max_tokens_per_minute" in differing:  # a bucket that is not set follows it, one that is set does not
            differing["burst"] = limits.burst
        body = {name: 1 if name == "weight" and each is None else each for name, each in differing.items()}
        yield Change(lines, "PUT", _limit(model), body)


# -- what the document does not name


def _pruned(found: Found, wanted: Document) -> Iterator[Change]:
    if wanted.routes is not None:
        for path, route in _in_order(found.routes):
            if path not in wanted.routes and is_below(path, wanted.prefix):
                yield from _route_pruned(path, route)
    if wanted.models is not None:
        for model, fields in _in_order(found.models or {}):
            if model not in wanted.models and is_below(route_of(model), wanted.prefix):
                yield from _model_pruned(model, fields)
    if wanted.limits is not None and wanted.prefix == "/":
        for model in sorted((found.limits or {}).keys() - wanted.limits.keys(), key=natural):
            yield Change((f"- limits.{written(model)}",), "DELETE", _limit(model))


def _route_pruned(path: str, route: FoundRoute) -> Iterator[Change]:
    """All of it in one step; where others have members there, what is not theirs."""
    if len(route.static) == len(route.members):
        yield Change((f"- routes.{written(path)}",), "DELETE", _route(path))
        return
    yield from _left(path, route.static)
    if route.settings or route.faults:
        lines = _differences(f"routes.{written(path)}", route.settings, {})[1]
        yield Change(lines or (f"- routes.{written(path)}: settings that cannot be used",), "PUT", _route(path), {})


def _model_pruned(model: str, fields: Mapping[str, Any]) -> Iterator[Change]:
    """A model that is paused stays so."""
    own = fields.keys() - _LEFT_TO_OTHERS
    if "paused" in fields:
        if own:
            yield Change((f"- models.{written(model)}",), "PATCH", _config(model), dict.fromkeys(sorted(own)))
    elif own or not fields:
        yield Change((f"- models.{written(model)}",), "DELETE", _config(model))


def _differences(
    place: str, have: Mapping[str, Any], want: Mapping[str, Any]
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """What has to be set, None for what goes, and a line for each."""
    differing: dict[str, Any] = {}
    lines = []
    for name in sorted(have.keys() | want.keys()):
        if name not in want:
            lines.append(f"- {place}: {name} (was {written(have[name])})")
        elif name not in have:
            lines.append(f"+ {place}: {name} = {written(want[name])}")
        elif have[name] != want[name]:
            lines.append(f"~ {place}: {name} = {written(want[name])} (was {written(have[name])})")
        else:
            continue
        differing[name] = want.get(name)
    return differing, tuple(lines)


def _in_order(table: Mapping[str, Any]) -> list[tuple[str, Any]]:
    return sorted(table.items(), key=lambda item: natural(item[0]))


def _route(path: str) -> str:
    return f"/routes{path}"


def _config(model: str) -> str:
    return f"/admin/model-configs/{quote(model, safe='/')}"


def _limit(model: str) -> str:
    return f"/models/{quote(model, safe='/')}"
