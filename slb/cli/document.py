"""The document that `slb export` prints and `slb apply` reads: what is set on the fleet, as TOML or JSON.

    prefix = "/models"             # the routes it speaks of: this one and those below; all, where it is missing
    [routes."/models/a"]           # settings of the route, and `members`
    [upstreams."10.0.0.1:80"]      # attributes of a member, which are the same in all of its routes
    [models.flux]                  # settings of a model of the job dispatcher
    [limits.gpt-4o]                # what a model of the quota router may take

Of the four tables, one that is missing is left alone. What a route, a model or an upstream does not name is at its
default. Left alone are also the members of a route without `members`, and `endpoint` of a model without it.
`drain` and `paused` are states of the moment, which no document has."""

import json
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from slb.api.quota_bodies import LimitsBody
from slb.dns_names import normal_target
from slb.errors import ConfigError, InvalidName
from slb.job import ModelConfig, route_of
from slb.model import RouteSettings, UpstreamAttributes, setting_fault
from slb.names import natural, normal_path
from slb.quotas import Limits, checked_model
from slb.setting_types import LONGEST_PATH
from slb.setting_values import meant

TABLES = ("routes", "upstreams", "models", "limits")
ATTRIBUTES: Mapping[str, Any] = {"weight": 1, "slots": 1, "zone": "", "node": ""}
"""Of an upstream, and their defaults."""

_MOST_FAULTS = 20
_MOMENTARY = {
    ("upstreams", "drain"): "slb drain and slb undrain set it",
    ("models", "paused"): "slb jobs pause and slb jobs resume set it",
    ("limits", "paused"): "slb quota models set sets it",
}
_HEADING = (
    "# What slb export wrote. slb diff -f FILE shows what has changed since; slb apply -f FILE makes this hold.\n"
)
_PLAIN_KEY = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-")

_T = TypeVar("_T")
_Table = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Route:
    """Settings in the form they are typed in. `members` None: left alone."""

    settings: Mapping[str, Any]
    members: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class Document:
    """Everything in its normal form. A table that is None is left alone. `upstreams`: without what is at its
    default. `models`: likewise, but for an `endpoint` that is named."""

    prefix: str = "/"
    routes: Mapping[str, Route] | None = None
    upstreams: Mapping[str, _Table] | None = None
    models: Mapping[str, _Table] | None = None
    limits: Mapping[str, Limits] | None = None


def is_below(path: str, prefix: str) -> bool:
    """Whether a route is `prefix` or below it, by whole segments; both in normal form."""
    return path == prefix or path.startswith(prefix.rstrip("/") + "/")


# -- reading


class _Faults:
    """Collects what is wrong, so that a file is refused with all of it."""

    def __init__(self) -> None:
        self.found: list[str] = []

    def add(self, place: str, what: object) -> None:
        self.found.append(f"{place}: {what}")

    def taken(self, place: str, make: Callable[[], _T]) -> _T | None:
        """What `make` makes; None where it cannot, which is noted."""
        try:
            return make()
        except ValidationError as error:
            for each in error.errors(include_url=False):
                unknown = each["type"] == "extra_forbidden"
                message = "there is no field of this name" if unknown else each["msg"].removeprefix("Value error, ")
                self.add(".".join([place, *map(str, each["loc"])]), message)
        except InvalidName as error:
            self.add(place, error)
        return None

    def check(self) -> None:
        """Raises ConfigError where there are any."""
        if self.found:
            more = len(self.found) - _MOST_FAULTS
            raise ConfigError("; ".join(self.found[:_MOST_FAULTS]) + (f"; and {more} more" if more > 0 else ""))


def read(text: str) -> Document:
    """A document out of TOML, or out of JSON, which begins with a brace. Raises ConfigError with all that is wrong
    in it."""
    data = _parsed(text)
    faults = _Faults()
    for name in data.keys() - {"prefix", *TABLES}:
        faults.add(name, f"there is no table of this name{meant(name, TABLES)}")
    for name in TABLES:
        if not isinstance(data.get(name, {}), dict):
            faults.add(name, "has to be a table")
        elif flat := [key for key, each in data.get(name, {}).items() if not isinstance(each, dict)]:
            faults.add(f"{name}.{_key(flat[0])}", "has to be a table")
    faults.check()
    prefix = faults.taken("prefix", lambda: _path(data.get("prefix", "/"))) or "/"
    document = Document(
        prefix,
        _section(data, "routes", lambda table: _routes(faults, table, prefix)),
        _section(data, "upstreams", lambda table: _upstreams(faults, table)),
        _section(data, "models", lambda table: _models(faults, table, prefix)),
        _section(data, "limits", lambda table: _limits(faults, table, prefix)),
    )
    _check_named(faults, document)
    faults.check()
    return document


def _parsed(text: str) -> dict[str, Any]:
    try:
        if not text.lstrip().startswith("{"):
            return tomllib.loads(text)
        found = json.loads(text, object_pairs_hook=_unique, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:  # TOML's and JSON's own errors are ValueErrors
        raise ConfigError(str(error)) from None
    assert isinstance(found, dict)
    return found


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"{next(name for name in names if names.count(name) > 1)!r} stands there twice")
    return found


def _no_number(text: str) -> None:
    raise ValueError(f"{text} is no number of JSON")


def _section(data: _Table, name: str, make: Callable[[_Table], _T]) -> _T | None:
    return make(data[name]) if name in data else None


def _path(text: Any) -> str:
    if not isinstance(text, str):
        raise InvalidName("has to be a path, such as /models")
    path = normal_path(text)
    if len(path) > LONGEST_PATH:
        raise InvalidName(f"a route's path has {LONGEST_PATH} characters at most")
    return path


def _named(
    faults: _Faults, name: str, table: _Table, normal: Callable[[str], str]
) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Of each entry its place in the document, its name in normal form, and what it holds."""
    seen: set[str] = set()
    for key, fields in table.items():
        place = f"{name}.{_key(key)}"
        made = faults.taken(place, partial(normal, key))
        if made is None:
            continue
        if made in seen:
            faults.add(place, f"{made} stands there twice")
        seen.add(made)
        kept = {}
        for field, value in fields.items():
            if set_by := _MOMENTARY.get((name, field)):
                faults.add(f"{place}.{field}", f"is a state of the moment, which no file has: {set_by}")
            elif value is None:
                faults.add(f"{place}.{field}", "null is no value: what is left out is at its default")
            else:
                kept[field] = value
        yield place, made, kept


def _routes(faults: _Faults, table: _Table, prefix: str) -> dict[str, Route]:
    found = {}
    for place, path, fields in _named(faults, "routes", table, _path):
        if not is_below(path, prefix):
            faults.add(place, f"is not below prefix, {prefix}")
        members = _members(faults, place, fields.pop("members")) if "members" in fields else None
        wrong = {name: fault for name, each in fields.items() if (fault := setting_fault(name, each))}
        for name, fault in wrong.items():
            faults.add(place, fault + ("" if name in RouteSettings.model_fields else meant(name, _ON_A_ROUTE)))
        usable = {name: each for name, each in fields.items() if name not in wrong}
        found[path] = Route(typed(RouteSettings, usable), members)
    return found


_ON_A_ROUTE = ("members", *RouteSettings.model_fields)


def _members(faults: _Faults, place: str, written: Any) -> frozenset[str]:
    if not isinstance(written, list) or not all(isinstance(each, str) for each in written):
        faults.add(f"{place}.members", "has to be a list of upstreams, such as 10.0.0.1:80")
        return frozenset()
    members = [faults.taken(f"{place}.members", partial(normal_target, each)) for each in written]
    for each in {each for each in members if each is not None and members.count(each) > 1}:
        faults.add(f"{place}.members", f"{each} stands there twice")
    return frozenset(each for each in members if each is not None)


class _Attributes(UpstreamAttributes):
    model_config = ConfigDict(strict=True)


def _upstreams(faults: _Faults, table: _Table) -> dict[str, _Table]:
    found: dict[str, _Table] = {}
    for place, member, fields in _named(faults, "upstreams", table, normal_target):
        made = faults.taken(place, partial(_Attributes.model_validate, fields))
        if made is not None:
            found[member] = without_defaults(made.model_dump(exclude_none=True))
    return found


def _models(faults: _Faults, table: _Table, prefix: str) -> dict[str, _Table]:
    found: dict[str, _Table] = {}
    for place, model, fields in _named(faults, "models", table, checked_model):
        if not is_below(route_of(model), prefix):
            faults.add(place, f"its route, {route_of(model)}, is not below prefix, {prefix}")
        made = faults.taken(place, partial(ModelConfig.model_validate, fields))
        if made is not None:
            shown = made.model_dump(mode="json", exclude_defaults=True)
            found[model] = {**({"endpoint": made.endpoint} if "endpoint" in fields else {}), **shown}
    return found


def _limits(faults: _Faults, table: _Table, prefix: str) -> dict[str, Limits]:
    if table and prefix != "/":
        faults.add("limits", "models of the quota router belong to no path, so a file with a prefix has none")
    found = {}
    for place, model, fields in _named(faults, "limits", table, checked_model):
        made = faults.taken(place, partial(LimitsBody.model_validate, fields))
        if missing := [each for each in ("max_tokens_per_minute", "max_concurrent_requests") if each not in fields]:
            faults.add(place, f"{' and '.join(missing)} has to be given")
        elif made is not None:
            found[model] = Limits(**made.model_dump(exclude={"paused"}))
    return found


def _check_named(faults: _Faults, document: Document) -> None:
    """Attributes of what no route of the document names would be set on nothing, or on what is not its own."""
    named = {each for route in (document.routes or {}).values() for each in route.members or ()}
    for member in sorted((document.upstreams or {}).keys() - named):
        faults.add(f"upstreams.{_key(member)}", "no route in this file has it among its members")


def typed(kind: type[BaseModel], fields: _Table) -> dict[str, Any]:
    """Valid settings in the one form in which they are typed: durations as text, None as `none`."""
    made = kind.model_validate(fields).model_dump(mode="json")
    return {name: "none" if made[name] is None else made[name] for name in fields}


def without_defaults(attributes: _Table) -> dict[str, Any]:
    """Attributes of an upstream that say something."""
    return {name: each for name, each in attributes.items() if each != ATTRIBUTES[name]}


# -- writing


def as_json(document: Document) -> str:
    return json.dumps(_tables(document), indent=2, ensure_ascii=False) + "\n"


def as_toml(document: Document) -> str:
    """As `read` takes it: names in order, a line for each setting and each member."""
    tables = _tables(document)
    lines = [_HEADING]
    if "prefix" in tables:
        lines.append(f"prefix = {written(tables.pop('prefix'))}\n")
    for name, table in tables.items():
        if not table:  # there, and empty: other than one that is left alone
            lines.append(f"\n[{name}]\n")
        for key, fields in table.items():
            lines.append(f"\n[{name}.{_key(key)}]\n")
            lines += [f"{_key(field)} = {written(each, is_alone=True)}\n" for field, each in fields.items()]
    return "".join(lines)


def _tables(document: Document) -> dict[str, Any]:
    found: dict[str, Any] = {} if document.prefix == "/" else {"prefix": document.prefix}
    if document.routes is not None:
        found["routes"] = {path: _route_fields(route) for path, route in _in_order(document.routes)}
    for name, table in (("upstreams", document.upstreams), ("models", document.models)):
        if table is not None:
            found[name] = {key: dict(sorted(fields.items())) for key, fields in _in_order(table)}
    if document.limits is not None:
        found["limits"] = {model: limit_fields(each) for model, each in _in_order(document.limits)}
    return found


def _in_order(table: Mapping[str, _T]) -> list[tuple[str, _T]]:
    return sorted(table.items(), key=lambda item: natural(item[0]))


def _route_fields(route: Route) -> dict[str, Any]:
    members = {} if route.members is None else {"members": sorted(route.members, key=natural)}
    return {**members, **dict(sorted(route.settings.items()))}


def limit_fields(limits: Limits) -> dict[str, Any]:
    """Those that are not at their default, in the order of people."""
    fields: dict[str, Any] = {
        "max_tokens_per_minute": limits.max_tokens_per_minute,
        "max_concurrent_requests": limits.max_concurrent_requests,
    }
    if limits.weight != 1:
        fields["weight"] = limits.weight
    if limits.burst is not None:
        fields["burst"] = limits.burst
    return fields


def written(value: Any, is_alone: bool = False) -> str:
    """A value in TOML. `is_alone`: a list that is not empty has a line for each of its elements."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    each = [written(element) for element in value]
    return "[\n" + "".join(f"    {one},\n" for one in each) + "]" if is_alone and each else f"[{', '.join(each)}]"


def _key(name: str) -> str:
    return name if name and _PLAIN_KEY.issuperset(name) else written(name)
