"""Write the tables of docs/reference/ from the code.

    python tools/reference.py    # what `make reference` runs

The pages are written by hand, but for what stands between `<!-- table: KIND NAMES -->` and
`<!-- end of table -->`. KIND is one of `_TABLES`; NAMES are the settings of a table, or the endpoints' role. What a
setting or a reason means is its docstring in the code. A mention of `docs/page.md#heading` there becomes a link.
"""

import ast
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, get_args
from unittest.mock import Mock

import typer
from pydantic import BaseModel

from slb import errors
from slb.api.application import api_endpoints
from slb.api.openapi import document
from slb.cli.entry import app
from slb.config import Settings
from slb.job import ModelConfig
from slb.model import RouteSettings
from slb.names import duration
from slb.observe.changes import What
from slb.observe.collectors import MetricsCollector
from slb.observe.metrics import Metrics
from slb.setting_types import LONGEST_DURATION
from slb.tokens import RIGHTS
from tools.event_names import logged

ROOT = Path(__file__).resolve().parent.parent
PAGES = ROOT / "docs" / "reference"
_TABLE = re.compile(r"(<!-- table: ([a-z-]+)([^>]*) -->\n).*?(<!-- end of table -->)", re.DOTALL)
_MENTION = re.compile(r"docs/([a-z-]+\.md)(?:#([a-z0-9-]+))?")
_OWN_DEFAULTS = {"data_dir": "~/.local/share/slb", "redis_url": "embedded://"}
"""What differs by user, and what is masked."""
_OF_ALL = ("unauthorized", "forbidden", "internal", "http_version")
"""Reasons that the page names once."""
_ROUTE_SETTINGS_SHOWN = "any of the [route settings](settings.md#route-settings)"

Cells = Sequence[str]


def written(page: str) -> str:
    """`page` with its tables as the code has them. Raises ValueError where a setting is in no table, or in two."""
    for kind, model in (("settings", Settings), ("route-settings", RouteSettings)):
        named = [name for _, each, names, _ in _TABLE.findall(page) if each == kind for name in names.split()]
        if named and sorted(named) != sorted(model.model_fields):
            raise ValueError(f"{kind}: {set(named) ^ set(model.model_fields) or 'one stands in two tables'}")
    return _TABLE.sub(lambda found: found[1] + _TABLES[found[2]](found[3].split()) + found[4], page)


def heading_anchors(page: str) -> dict[str, str]:
    """The anchors of a Markdown page, as GitHub and GitLab make them, and the headings they lead to."""
    headings = re.findall(r"^#+ (.*)$", page, re.MULTILINE)
    return {re.sub(r"[^a-z0-9 _-]", "", each.lower()).replace(" ", "-"): each for each in headings}


def _settings(names: Sequence[str]) -> str:
    return _rows(("setting", "default", "kind", "what"), _described(Settings, names))


def _route_settings(names: Sequence[str]) -> str:
    return _rows(("route setting", "default", "kind", "what"), _described(RouteSettings, names))


def _job_settings(names: Sequence[str]) -> str:
    return _rows(("setting", "default", "kind", "what"), _described(ModelConfig, names))


def _described(model: type[BaseModel], names: Iterable[str]) -> Iterable[Cells]:
    read = model.model_json_schema(mode="validation")["properties"]
    shown = model.model_json_schema(mode="serialization")["properties"]
    defaults = {**model().model_dump(mode="json"), **(_OWN_DEFAULTS if model is Settings else {})}
    for name in names:
        field = model.model_fields[name]
        if not field.description:
            raise ValueError(f"{name}: it has no docstring")
        kind = _kind(_without_null(read[name]), _without_null(shown[name]))
        bounds = _bounds(field.metadata, _time if kind == "duration" else "{:,}".format)
        yield f"`{name}`", _default(defaults[name]), kind + bounds, _linked(field.description)


def _default(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(f"`{each}`" for each in value) or "none"
    if value in (None, "", {}):
        return "none"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _without_null(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    return next((each for each in schema.get("anyOf", ()) if each.get("type") != "null"), schema)


def _kind(read: Mapping[str, Any], shown: Mapping[str, Any]) -> str:
    """What is written there; `shown` is a text where `read` is the number of a duration's seconds."""
    if "enum" in read:
        return "word"
    if read["type"] in ("number", "integer"):
        return "duration" if shown["type"] == "string" else "number"
    kinds = {"boolean": "true or false", "array": "list", "object": "table", "string": "text"}
    return "file" if read.get("format") == "path" else kinds[read["type"]]


def _bounds(metadata: Iterable[Any], shown: Callable[[float], str]) -> str:
    """`, 1 to 256`, from the constraints of a field; empty where there are none but 0 and a duration's longest."""
    every = list(metadata)
    low = max((each.ge for each in every if hasattr(each, "ge")), default=0)
    high = min((each.le for each in every if hasattr(each, "le")), default=LONGEST_DURATION)
    if any(getattr(each, "gt", None) == 0 for each in every):
        return ", above 0" if high == LONGEST_DURATION else f", above 0, up to {shown(high)}"
    if high != LONGEST_DURATION:
        return f", {shown(low)} to {shown(high)}"
    return f", at least {shown(low)}" if low else ""


def _time(value: float) -> str:
    return f"{value / 3600:g}h" if value and value % 3600 == 0 else duration(value)


def _reasons(_: Sequence[str]) -> str:
    meant = _docstrings(Path(errors.__file__))
    reasons = {name: each for name, each in vars(errors).items() if isinstance(each, errors.Reason)}
    del reasons["CLIENT_GONE"]  # never sent
    ordered = sorted(reasons.items(), key=lambda item: item[1].status)
    cells = ((str(each.status), f"`{each.name}`", _linked(meant[name])) for name, each in ordered)
    return _rows(("status", "reason", "when"), cells)


def _docstrings(file: Path) -> dict[str, str]:
    """The text behind each constant of a module."""
    body = ast.parse(file.read_text()).body
    return {
        assigned.targets[0].id: text.value.value
        for assigned, text in pairwise(body)
        if isinstance(assigned, ast.Assign) and isinstance(assigned.targets[0], ast.Name)
        if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant) and isinstance(text.value.value, str)
    }


def _operations(role: str) -> Iterable[tuple[str, Mapping[str, Any]]]:
    """Method and path, and what OpenAPI says of it, of those that this role adds."""
    none = dict.fromkeys(("quota", "jobs"))
    of_all = document(api_endpoints(Mock(**none)))["paths"]
    every = document(api_endpoints(Mock(**{**none, role: Mock()})))["paths"]
    for path, methods in every.items():
        for method, operation in methods.items():
            if role == "proxy" or path not in of_all:
                yield f"`{method.upper()} {path}`", operation


def _endpoints(names: Sequence[str]) -> str:
    cells = ((name, _rights(operation), _in_short(operation)) for name, operation in _operations(names[0]))
    return _rows(("endpoint", "right", "what"), cells)


def _rights(operation: Mapping[str, Any]) -> str:
    """Those of which one is needed; `admin`, which always does, only where it stands alone."""
    named = [right for each in operation["security"] for right in each.get("token", ())]
    if len(named) == len(RIGHTS):
        return "any"
    return " or ".join(f"`{each}`" for each in named) or "none"


def _in_short(operation: Mapping[str, Any]) -> str:
    return _linked(f"{operation['summary']}. {operation.get('description', '')}").strip()


def _bodies(names: Sequence[str]) -> str:
    cells = []
    for name, operation in _operations(names[0]):
        asked = [each for each in operation.get("parameters", ()) if each["in"] == "query"]
        taken = [f"`?{each['name']}=`: {each['description']}" for each in asked]
        if "requestBody" in operation:
            taken.append(_shape(operation["requestBody"]["content"]["application/json"]["schema"]))
        (reply,) = min(operation["responses"].items())[1]["content"].values()
        named = " ".join(each["description"] for code, each in operation["responses"].items() if int(code) >= 400)
        refused = [f"`{each}`" for each in re.findall("`(.+?)`", named) if each not in _OF_ALL]
        cells.append((name, "<br>".join(taken), _shape(reply["schema"]), ", ".join(refused)))
    return _rows(("of the endpoint", "takes", "answers", "or refuses with"), cells)


def _shapes(_: Sequence[str]) -> str:
    schemas = document(api_endpoints(Mock()))["components"]["schemas"]
    cells = []
    for name, schema in sorted(schemas.items()):
        needed = schema.get("required", ())
        fields = [
            f"`{field}` {_shape(each)}{'' if field in needed else ', optional'}"
            for field, each in schema["properties"].items()
        ]
        cells.append((f"`{name}`", "<br>".join(fields), _linked(schema.get("description", ""))))
    return _rows(("shape", "fields", "what"), cells)


def _shape(schema: Any) -> str:
    """A schema in words."""
    if schema is True or not schema:
        return "anything"
    if "$ref" in schema:
        return f"`{schema['$ref'].rpartition('/')[2]}`"
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(_shape(each) for each in schema["anyOf"]))
    if "enum" in schema or "const" in schema:
        return " or ".join(f"`{each}`" for each in schema.get("enum", [schema.get("const")]))
    if "type" not in schema:
        return "anything"
    if schema["type"] == "array":
        return f"list of {_shape(schema['items'])}" if "items" in schema else "list"
    if schema["type"] == "object":
        if schema.get("properties", {}).keys() == RouteSettings.model_fields.keys():
            return _ROUTE_SETTINGS_SHOWN
        values = schema.get("additionalProperties")
        return f"object of {_shape(values)}" if isinstance(values, dict) and values else "object"
    kind: str = schema["type"]
    return {"string": "text", "boolean": "true or false"}.get(kind, kind)


def metrics_of_all_roles() -> Metrics:
    """Of a process with every role, none of which has counted anything."""
    metrics = Metrics()
    metrics.quota.is_on = metrics.jobs.is_on = metrics.dns.is_on = True
    metrics.discovery.writes = 1
    return metrics


def _metrics(_: Sequence[str]) -> str:
    every = {each.name: each for each in MetricsCollector(metrics_of_all_roles()).collect()}
    cells = []
    for name, family in sorted(every.items()):
        shown = f"`{name}_total`" if family.type == "counter" else f"`{name}`"
        labels = ", ".join(f"`{each}`" for each in getattr(family, "_labelnames", ()))
        cells.append((shown, family.type, labels, family.documentation))
    return _rows(("metric", "type", "labels", "what"), cells)


def _commands(_: Sequence[str]) -> str:
    root = typer.main.get_command(app)
    return "".join(_command(name, command) for name, command in listed(root, "slb")) + "\n"


def listed(group: Any, name: str) -> Iterable[tuple[str, Any]]:
    """Every command of `group` that can be called and is shown, by its whole name, groups before their own."""
    for word, command in group.commands.items():
        if getattr(command, "hidden", False):
            continue
        if getattr(command, "invoke_without_command", True):
            yield f"{name} {word}", command
        if hasattr(command, "commands"):
            yield from listed(command, f"{name} {word}")


def _command(name: str, command: Any) -> str:
    shown = [each for each in command.params if not getattr(each, "hidden", False)]
    words = [_word(each) for each in shown if each.param_type_name == "argument"]
    options = [each for each in shown if each.param_type_name == "option"]
    rows = [(_option(each), _linked(each.help or "")) for each in options if each.opts != ["--help"]]
    text = "\n\n".join(" ".join(part.split()) for part in (command.help or "").split("\n\n"))
    table = _rows(("option", "what"), rows) if rows else ""
    return f"\n## {name}\n\n`{' '.join([name, *words])}`\n\n{text}\n{f'{chr(10)}{table}' if table else ''}"


def _word(argument: Any) -> str:
    name = f"{argument.metavar or argument.name.upper()}{'...' if argument.nargs == -1 else ''}"
    return name if argument.required else f"[{name}]"


def _option(option: Any) -> str:
    value = "" if option.is_flag else f" {option.metavar or option.name.upper()}"
    return ", ".join(f"`{each}{value}`" for each in option.opts)


def _linked(text: str) -> str:
    """In one line, with links in the place of mentions of documents."""
    return _MENTION.sub(lambda found: _link(found[1], found[2]), " ".join(text.split()))


def _link(file: str, anchor: str | None) -> str:
    page = (ROOT / "docs" / file).read_text()
    text = heading_anchors(page)[anchor] if anchor else page.partition("\n")[0].removeprefix("# ")
    return f"[{text}](../{file}{f'#{anchor}' if anchor else ''})"


def _rows(heads: Cells, rows: Iterable[Cells]) -> str:
    lines = [" | ".join(heads), *(" | ".join(cell.replace("|", "\\|") for cell in row) for row in rows)]
    first, *others = [f"| {line} |\n".replace("|  |", "| |") for line in lines]
    return first + "|" + "---|" * len(heads) + "\n" + "".join(others)


def _events(_: Sequence[str]) -> str:
    found = logged(sorted((ROOT / "slb").rglob("*.py"))).items()
    cells = ((f"`{name}`", levels, ", ".join(f"`{each}`" for each in fields)) for name, (levels, fields) in found)
    return _rows(("event", "level", "fields"), cells)


def _changes(_: Sequence[str]) -> str:
    return ", ".join(f"`{each}`" for each in get_args(What)) + "\n"


_TABLES: Mapping[str, Callable[[Sequence[str]], str]] = {
    "settings": _settings,
    "route-settings": _route_settings,
    "job-settings": _job_settings,
    "reasons": _reasons,
    "endpoints": _endpoints,
    "bodies": _bodies,
    "shapes": _shapes,
    "metrics": _metrics,
    "commands": _commands,
    "events": _events,
    "changes": _changes,
}


def main() -> None:
    """Write every page anew."""
    for file in sorted(PAGES.glob("*.md")):
        file.write_text(written(file.read_text()))


if __name__ == "__main__":
    main()
