"""Route settings as a caller writes them: checked by name, and put into the one spelling Redis holds."""

from collections.abc import Mapping
from typing import Any

import orjson
from pydantic import ValidationError

from slb.api.bodies import MOST_FAULTS, too_many_faults
from slb.config import Settings
from slb.errors import BAD_REQUEST, Refused
from slb.model import RouteSettings, setting_fault, usable_settings

_NOT_SHOWN = frozenset({"default", "title", "ge", "gt", "le", "lt"})
"""Defaults depend on the instance's config; the bounds are of numbers, where the schema is of their text."""


def stored_settings(
    settings: Settings, path: str, written: Mapping[str, Any], kept: Mapping[str, str]
) -> dict[str, str]:
    """`written` as texts of the route's hash; `kept`: what else the hash holds. Raises Refused naming every unknown
    name and unusable value, or where both together make no route settings."""
    faults = [fault for name, value in written.items() if (fault := setting_fault(name, value))]
    if faults:
        raise _refused(faults)
    usable, _ = usable_settings(kept)
    try:
        made = settings.route_settings(path, {**usable, **written})
    except ValidationError as error:
        detail = "; ".join(fault["msg"].removeprefix("Value error, ") for fault in error.errors())
        raise Refused(BAD_REQUEST, f"settings of {path}: {detail}") from None
    shown = made.model_dump(mode="json")
    return {name: _text(shown[name]) for name, value in written.items() if value is not None}


def refuse_unknown(names: set[str]) -> None:
    """Raises Refused naming those that are no route settings."""
    unknown = sorted(names - RouteSettings.model_fields.keys())
    if unknown:
        raise _refused([f"{name}: there is no route setting of this name" for name in unknown])


def _refused(faults: list[str]) -> Refused:
    few = len(faults) <= MOST_FAULTS
    return Refused(BAD_REQUEST, "; ".join(faults) if few else too_many_faults(len(faults)))


def _text(value: Any) -> str:
    if value is None:
        return "none"
    return value if isinstance(value, str) else orjson.dumps(value).decode()


def changes_schema(nullable: bool) -> dict[str, Any]:
    """The JSON schema of a body of settings, durations as text; with `nullable`, null resets one."""
    schema = RouteSettings.model_json_schema(mode="serialization", ref_template="#/components/schemas/{model}")
    properties = {name: _property(each, nullable) for name, each in schema["properties"].items()}
    return {"type": "object", "additionalProperties": False, "properties": properties}


def _property(schema: Mapping[str, Any], nullable: bool) -> dict[str, Any]:
    plain = {key: value for key, value in schema.items() if key not in _NOT_SHOWN}
    return {"anyOf": [plain, {"type": "null"}]} if nullable else plain
