"""A file of members: by route, a list of upstreams, in TOML or JSON.

"/models/flux" = ["10.0.0.1:8000", { target = "10.0.0.2:8000", slots = 2 }]
"""

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, ConfigDict, ValidationError

from slb.addresses import AddressRules
from slb.discovery.found import Member
from slb.errors import ConfigError, InvalidName
from slb.model import Upstream, UpstreamAttributes
from slb.names import normal_member, normal_path
from slb.regular_files import read_file

Members = Mapping[str, Mapping[str, Member]]
"""route -> member -> what is said of it."""


class _Listed(UpstreamAttributes):
    model_config = ConfigDict(strict=True)

    target: Annotated[str, AfterValidator(normal_member)]
    drain: bool = False

    def member(self) -> Member:
        return Member(self.drain, self.weight, self.slots, self.zone or "", self.node or "")


def read_members(file: Path, rules: AddressRules) -> Members:
    """All or none: raises ConfigError, one line that names the place of the first fault."""
    try:
        text = read_file(file)
    except OSError as error:
        raise ConfigError(f"{file}: {error.strerror or error}") from None
    try:
        return parsed(text, file.suffix == ".json", rules)
    except ValueError as error:
        raise ConfigError(f"{file}: {error}") from None


def parsed(text: bytes, is_json: bool, rules: AddressRules) -> Members:
    """Raises ValueError, naming line and column, or route, number in its list and field."""
    try:
        written = json.loads(text) if is_json else tomllib.loads(text.decode())
    except RecursionError:
        raise ValueError("it has too many levels") from None
    if not isinstance(written, dict):
        raise ValueError("has to be an object: a list of upstreams for each route")
    routes: dict[str, Mapping[str, Member]] = {}
    for path, listed in written.items():
        route = _route(path)
        if route in routes:
            raise ValueError(f"{path}: {route} stands there twice")
        routes[route] = _members(path, listed, rules)
    return routes


def _route(path: str) -> str:
    try:
        return normal_path(path)
    except InvalidName as error:
        raise ValueError(
            f'{path}: {error}; by route, such as "/models/flux", there is a list of upstreams'
        ) from None


def _members(path: str, listed: Any, rules: AddressRules) -> dict[str, Member]:
    if not isinstance(listed, list):
        raise ValueError(f"{path}: has to be a list of upstreams")
    found: dict[str, Member] = {}
    for index, each in enumerate(listed):
        place = f"{path}[{index}]"
        read = _listed(place, {"target": each} if isinstance(each, str) else each)
        if refusal := rules.literal_refusal(Upstream.of(read.target)):
            raise ValueError(f"{place}: {refusal}")
        if read.target in found:
            raise ValueError(f"{place}: {read.target} stands there twice")
        found[read.target] = read.member()
    return found


def _listed(place: str, written: Any) -> _Listed:
    try:
        return _Listed.model_validate(written)
    except ValidationError as error:
        fault = error.errors()[0]
        field = "".join(f".{part}" for part in fault["loc"])
        unknown = "there is no field of this name" if fault["type"] == "extra_forbidden" else ""
        raise ValueError(f"{place}{field}: {unknown or fault['msg'].removeprefix('Value error, ')}") from None
