"""`slb quota` serves the quota router; `slb quota models|advice|watch` ask one that is served."""

import re
from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

import orjson
import typer

from slb.cli import options
from slb.cli.client import ApiClient, ApiError
from slb.cli.console import Rows, show, show_json, shown
from slb.cli.options import DEFAULT_URL, CaOption, JsonOption, TokenOption, UrlOption
from slb.cli.status import draw, ticks, until_stopped
from slb.names import natural
from slb.quotas import checked_model

if TYPE_CHECKING:
    from rich.console import Group

_FIGURES = {
    "weight": ("weight", ""),
    "in flight": ("in_flight", "max_concurrent_requests"),
    "tokens last minute": ("tokens_last_minute", "max_tokens_per_minute"),
    "in bucket": ("tokens", "burst"),
    "told to wait": ("waiting", ""),
}
"""What is shown of a model: a figure, and of how many."""
_FLAGS = {"true": True, "false": False, "none": None, "null": None}
_WHOLE = re.compile(r"-?[0-9]+")
_MAKES_ONE = "slb quota models set ID max_tokens_per_minute=... max_concurrent_requests=..."

ModelArgument = Annotated[str, typer.Argument(help="The model's id, such as gpt-4o-mini.")]


def serve(
    context: typer.Context,
    api: Annotated[str | None, typer.Option(help="HOST:PORT for the API [127.0.0.1:8081].")] = None,
    redis_url: options.RedisOption = None,
    config: options.ConfigOption = None,
    quota_fail: Annotated[
        str | None, typer.Option("--fail", help="While Redis is away: closed or open [closed].")
    ] = None,
    quota_lease: Annotated[
        str | None, typer.Option("--lease", help="How long a task lives without a heartbeat [150s].")
    ] = None,
    data_dir: options.DataDirOption = None,
    name: Annotated[str | None, typer.Option(help="What this instance is called in /instances.")] = None,
    log_level: Annotated[str | None, typer.Option(help="debug, info, warning or error [info].")] = None,
    takeover: options.TakeoverOption = None,
    end_with_stdin: options.EndWithStdin = False,
) -> int:
    """Serve the quota router, and no traffic: `slb serve --roles quota` in short."""
    if context.invoked_subcommand is not None:
        return 0
    from slb.cli.serving import serve_with

    options.check_not_alone(context, "slb serve --roles quota")
    return serve_with({**context.params, "roles": "quota"}, config, end_with_stdin)


def show_models(
    context: typer.Context,
    as_json: JsonOption = False,
    url: UrlOption = DEFAULT_URL,
    token: TokenOption = None,
    ca: CaOption = None,
) -> None:
    """Every model: what it may take, and what it takes now."""
    if context.invoked_subcommand is not None:
        return
    answer = ApiClient(url, token, ca).call("GET", "/models")
    if as_json:
        show_json(answer)
    elif answer["models"]:
        show(_table(answer["models"]))
    else:
        typer.echo(f"There are no models yet: {_MAKES_ONE} makes one.")


def set_model(
    model: ModelArgument,
    settings: Annotated[
        list[str],
        typer.Argument(metavar="KEY=VALUE", help="max_tokens_per_minute, max_concurrent_requests, weight, ..."),
    ],
    url: UrlOption = DEFAULT_URL,
    token: TokenOption = None,
    ca: CaOption = None,
) -> None:
    """Set what a model may take, from the next decision on; what is not named stays as it is."""
    changes = dict(_setting(each) for each in settings)
    answer = ApiClient(url, token, ca).call("PUT", _api_path(model), changes)
    for key in ("max_tokens_per_minute", "max_concurrent_requests", "weight", "burst", "paused"):
        typer.echo(f"{key} = {shown(answer[key])}")


def delete_model(
    model: ModelArgument, url: UrlOption = DEFAULT_URL, token: TokenOption = None, ca: CaOption = None
) -> None:
    """Remove a model; tasks that run there may finish."""
    answer = ApiClient(url, token, ca).call("DELETE", _api_path(model))
    typer.echo(f"{answer['id']}: removed")


def advice(
    as_json: JsonOption = False, url: UrlOption = DEFAULT_URL, token: TokenOption = None, ca: CaOption = None
) -> None:
    """How many callers would do, going by the last minute."""
    answer = ApiClient(url, token, ca).call("GET", "/advice")
    typer.echo(orjson.dumps(answer) if as_json else _advised(answer))


def watch(url: UrlOption = DEFAULT_URL, token: TokenOption = None, ca: CaOption = None) -> None:
    """The models and the advice, again every second, until Ctrl-C."""
    client = ApiClient(url, token, ca)
    _advised(client.call("GET", "/advice"))  # no answer to the first call is a failure
    with until_stopped():
        draw(_pictures(client))


def _pictures(client: ApiClient) -> "Iterator[Group]":
    from rich.console import Group

    models: list[dict[str, Any]] = []
    for _ in ticks():
        try:
            advised = _advised(client.call("GET", "/advice"))
            models = client.call("GET", "/models")["models"]
        except ApiError as error:
            advised = str(error)
        yield Group(f"{datetime.now().astimezone():%H:%M:%S}  {advised}", _table(models))


def _table(models: list[dict[str, Any]]) -> Rows:
    table = Rows(("model", *_FIGURES), right=_FIGURES.keys(), spare=("weight", "told to wait"))
    for each in sorted(models, key=lambda each: natural(each["id"])):
        name = each["id"] + (" (paused)" if each["paused"] else "")
        table.add_row(name, *(_figure(each, *keys) for keys in _FIGURES.values()))
    return table


def _figure(model: dict[str, Any], value: str, most: str) -> str:
    return f"{model[value]:.0f}" + (f" of {model[most]:.0f}" if most else "")


def _advised(answer: dict[str, Any]) -> str:
    return f"pressure {answer['backpressure_score']:.2f}, suggested parallelism {answer['suggested_parallelism']}"


def _api_path(model: str) -> str:
    return f"/models/{quote(checked_model(model), safe='/')}"


def _setting(text: str) -> tuple[str, int | bool | None]:
    what = " with a whole number, true, false or none"
    key, value = options.key_value(text, what)
    if value.lower() in _FLAGS:
        return key, _FLAGS[value.lower()]
    if not _WHOLE.fullmatch(value):
        raise options.Misused(f"{text!r} is not KEY=VALUE{what}")
    return key, int(value)
