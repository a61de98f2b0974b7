"""`slb export`, `slb diff`, `slb apply`: what is set on the fleet as one document, which people keep in git."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

import typer

from slb.cli.client import ApiClient, ApiError
from slb.cli.console import show_json
from slb.cli.options import DEFAULT_URL, CaOption, Misused, TokenOption, UrlOption
from slb.errors import ConfigError, InvalidName, SlbError
from slb.names import counted, normal_path
from slb.regular_files import LONGEST, read_file

if TYPE_CHECKING:
    from slb.cli.document import Document
    from slb.cli.plan import Change, Found

_Part = Literal["routes", "models", "limits"]
_PARTS: tuple[_Part, ...] = get_args(_Part)
_ENDPOINTS: Mapping[str, str] = {"models": "/admin/model-configs", "limits": "/models"}
"""Of the parts that an slb has by a role of its own."""
_WHICH_MEMBERS = ("static", "all", "none")
_FORMS = ("toml", "json")
_SAME, _DIFFERENT, _FAILED = 0, 1, 2

FileArgument = Annotated[
    str | None,
    typer.Argument(metavar="FILE", help="The file, TOML or JSON; - is standard input.", show_default=False),
]
FileOption = Annotated[str | None, typer.Option("--file", "-f", help="The same.", show_default=False)]
PruneOption = Annotated[
    bool, typer.Option("--prune", help="Remove also what is below the file's prefix and not in the file.")
]


def export(
    prefix: Annotated[str, typer.Option(help="The routes: this one and those below it.")] = "/",
    only: Annotated[
        str | None,
        typer.Option(help="Some of routes,models,limits [all that the instance has].", show_default=False),
    ] = None,
    members: Annotated[
        str, typer.Option(help="static: those registered for good; all: also with a lease, or discovered; none.")
    ] = "static",
    output: Annotated[str, typer.Option("--output", "-o", help="toml or json.")] = "toml",
    url: UrlOption = DEFAULT_URL,
    token: TokenOption = None,
    ca: CaOption = None,
) -> None:
    """Print what is set on routes, upstreams, models and limits, as a file for git that slb apply takes."""
    from slb.cli.document import as_json, as_toml
    from slb.cli.plan import exported

    _one_of("--members", members, _WHICH_MEMBERS)
    _one_of("--output", output, _FORMS)
    path = _prefix(prefix)
    parts = _parts(only, path)
    client = ApiClient(url, token, ca)
    missing = _missing(client, parts) if only is None else []
    parts = [each for each in parts if each not in missing]
    found = _found(client, parts)
    if missing:  # behind the call: where that fails, its error is all that there is to say
        what = " and ".join(missing)
        typer.echo(f"slb: without {what}: the slb at {url} has not the role for them", err=True)
    for route_path, route in found.routes.items():
        for fault in route.faults:
            typer.echo(f"slb: {route_path}: left out, as it cannot be used: {fault}", err=True)
    document = exported(found, path, members, with_routes="routes" in parts)
    typer.echo(as_json(document) if output == "json" else as_toml(document), nl=False)


def diff(
    named: FileArgument = None,
    file: FileOption = None,
    prune: PruneOption = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print `changes`: the calls that slb apply would make.")
    ] = False,
    url: UrlOption = DEFAULT_URL,
    token: TokenOption = None,
    ca: CaOption = None,
) -> int:
    """Show what slb apply would change, a line each. The exit code is 0 for nothing, 1 for something, 2 for a
    failure."""
    path = _file("diff", named, file)
    try:
        changes = _planned(ApiClient(url, token, ca), _document(path), prune)
    except SlbError as error:
        typer.echo(f"slb: {' '.join(str(error).split())}", err=True)
        return _FAILED
    if as_json:
        show_json({"changes": [change._asdict() for change in changes]})
    else:
        _show(changes)
    return _DIFFERENT if changes else _SAME


def apply(
    named: FileArgument = None,
    file: FileOption = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what would change, and what would be refused.")
    ] = False,
    prune: PruneOption = False,
    url: UrlOption = DEFAULT_URL,
    token: TokenOption = None,
    ca: CaOption = None,
) -> None:
    """Make what a file says hold; a second time changes nothing."""
    document = _document(_file("apply", named, file))
    client = ApiClient(url, token, ca)
    changes = _planned(client, document, prune)
    if dry_run:
        _show(changes)
        _rehearse(client, changes)
        typer.echo(f"{_counted(changes)}, none made (--dry-run)")
        return
    for number, change in enumerate(changes):
        try:
            client.call(change.method, change.path, change.body)
        except ApiError as error:
            for verb, some in (("failed", [change]), ("not made", changes[number + 1 :])):
                for line in _lines(some):
                    typer.echo(f"{verb}: {line}", err=True)
            made = f"{len(_lines(changes[:number]))} of {_counted(changes)} are made; a second run goes on"
            raise ApiError(f"{error} ({made})", error.reason) from None
        _show([change])
    typer.echo(f"{_counted(changes)} made" if changes else "0 changes")


def _rehearse(client: ApiClient, changes: "Sequence[Change]") -> None:
    """Ask the instance about each change. Raises ApiError with the first refusal."""
    refused: list[tuple[Change, ApiError]] = []
    for change in changes:
        try:
            client.call(change.method, change.path, change.body, dry_run=True)
        except ApiError as error:
            if not error.reason:  # no refusal, but no answer
                raise
            refused.append((change, error))
    for _, refusal in refused[1:]:
        typer.echo(f"slb: {refusal}", err=True)
    if refused:
        lines, first = _lines([change for change, _ in refused]), refused[0][1]
        made = f"{len(lines)} of {_counted(changes)} would be refused, none made (--dry-run)"
        raise ApiError(f"{first} ({made})", first.reason)


# -- what was typed


def _one_of(option: str, text: str, known: Sequence[str]) -> None:
    if text not in known:
        raise Misused(f"{option}: {text!r} is none of {', '.join(known)}")


def _file(command: str, argument: str | None, option: str | None) -> str:
    """The file that is named in either way. Raises Misused where none is, or two are."""
    if argument is not None and option is not None:
        raise Misused(f"one file at a time: {argument!r} and {option!r} are two")
    if (file := argument or option) is None:
        raise Misused(f"no file is named: slb {command} -f FILE; - is standard input")
    return file


def _parts(only: str | None, prefix: str) -> list[_Part]:
    """Those that are named, or else all that may have anything below the prefix. Raises Misused."""
    from slb.cli.document import is_below
    from slb.job import ROUTE

    of_jobs = prefix == "/" or is_below(prefix, ROUTE.rstrip("/"))
    outside: dict[_Part, bool] = {"routes": False, "models": not of_jobs, "limits": prefix != "/"}
    if only is None:
        return [each for each in _PARTS if not outside[each]]
    named = [each.strip() for each in only.split(",")]
    for each in named:
        _one_of("--only", each, _PARTS)
    found = [each for each in _PARTS if each in named]
    if wrong := [each for each in found if outside[each]]:
        raise Misused(f"--only: there are no {wrong[0]} below {prefix}: leave out --prefix, or {wrong[0]}")
    return found


def _prefix(text: str) -> str:
    try:
        return normal_path(text)
    except InvalidName as error:
        raise Misused(f"--prefix: {error}") from None


def _document(file: str) -> "Document":
    """Raises ConfigError, which names the file."""
    from slb.cli.document import read

    try:
        return read(_content(file).decode())
    except OSError as error:
        raise ConfigError(f"{file}: {error.strerror or error}") from None
    except (UnicodeDecodeError, ConfigError) as error:
        raise ConfigError(f"{'standard input' if file == '-' else file}: {error}") from None


def _content(file: str) -> bytes:
    """Raises OSError, and ConfigError where too much comes."""
    if file != "-":
        return read_file(Path(file))
    if sys.stdin is None:
        raise ConfigError("it is closed")
    content = sys.stdin.buffer.read(LONGEST + 1)
    if len(content) > LONGEST:
        raise ConfigError(f"it has more than {LONGEST} bytes")
    return content


# -- what is there


def _missing(client: ApiClient, parts: Sequence[_Part]) -> list[_Part]:
    """Those of the parts that the instance has no role for. Raises ApiError."""
    paths = {each["path"] for each in client.call("GET", "/")["endpoints"]}
    return [each for each in parts if _ENDPOINTS.get(each, "/written") not in paths]


def _found(client: ApiClient, parts: Sequence[str]) -> "Found":
    from slb.cli.plan import Found

    answer = client.call("GET", "/written") if "routes" in parts else {"routes": {}, "upstreams": {}}
    models = client.call("GET", _ENDPOINTS["models"])["models"] if "models" in parts else None
    limits = client.call("GET", _ENDPOINTS["limits"])["models"] if "limits" in parts else None
    return Found(
        {path: _route(path, each) for path, each in answer["routes"].items()},
        answer["upstreams"],
        None if models is None else {name: _model(name, each) for name, each in models.items()},
        None if limits is None else {each["id"]: _limit(each) for each in limits},
    )


def _route(path: str, shown: Mapping[str, Any]) -> Any:
    from slb.cli.document import typed
    from slb.cli.plan import FoundRoute
    from slb.model import RouteSettings, usable_settings

    usable, unknown = usable_settings(shown["settings"])  # an instance of another version may know others
    return FoundRoute(typed(RouteSettings, usable), shown["members"], (*shown["faults"], *unknown))


def _model(name: str, shown: Mapping[str, Any]) -> Any:
    """Raises ApiError where this version of slb does not know all of it."""
    from pydantic import ValidationError

    from slb.job import ModelConfig

    try:
        return ModelConfig.model_validate(shown).model_dump(mode="json", exclude_defaults=True)
    except ValidationError as error:
        fault = error.errors()[0]
        where = ".".join(["models", name, *map(str, fault["loc"])])
        raise ApiError(f"{where}: what is set there, this version of slb does not know: {fault['msg']}") from None


def _limit(shown: Mapping[str, Any]) -> Any:
    """The answer has the bucket that holds, set or not: one that is as large as it would be anyway is not set."""
    from slb.quotas import Limits

    plain = Limits(shown["max_tokens_per_minute"], shown["max_concurrent_requests"], shown["weight"])
    burst = None if shown["burst"] == plain.bucket else shown["burst"]
    return Limits(plain.max_tokens_per_minute, plain.max_concurrent_requests, plain.weight, burst)


def _planned(client: ApiClient, document: "Document", prune: bool) -> "list[Change]":
    from slb.cli.plan import plan

    tables = {"routes": document.routes, "models": document.models, "limits": document.limits}
    return plan(_found(client, [name for name, table in tables.items() if table is not None]), document, prune)


# -- what is shown


def _lines(changes: "Sequence[Change]") -> list[str]:
    return [line for change in changes for line in change.lines]


def _show(changes: "Sequence[Change]") -> None:
    for line in _lines(changes):
        typer.echo(line)


def _counted(changes: "Sequence[Change]") -> str:
    return counted(len(_lines(changes)), "change")
