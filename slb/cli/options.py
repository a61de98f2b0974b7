"""Options that several commands take."""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from slb.errors import SlbError
from slb.model import MAX_TTL, MIN_TTL
from slb.names import seconds

DEFAULT_URL = "http://127.0.0.1:8081"
UrlOption = Annotated[str, typer.Option("--url", envvar="SLB_URL", help="The API of any slb instance.")]
TokenOption = Annotated[
    str | None, typer.Option("--token", envvar="SLB_TOKEN", help="The API token.", show_default=False)
]
CaOption = Annotated[
    Path | None,
    typer.Option(
        "--ca",
        envvar="SLB_CA",
        help="A PEM file of the authorities that an https:// API is verified by [the machine's].",
        show_default=False,
        readable=False,
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the API's answer as it is.")]
ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config", envvar="SLB_CONFIG", help="A TOML file with settings.", show_default=False, readable=False
    ),
]
DataDirOption = Annotated[
    Path | None, typer.Option("--data-dir", help="Where the table and the embedded Valkey live.", readable=False)
]
"""typer does not check that it can be read: it would do so with a message and an exit code of its own."""
RedisOption = Annotated[
    str | None, typer.Option("--redis", help="URL of Redis or Valkey [an embedded Valkey].", show_default=False)
]
TakeoverOption = Annotated[
    bool | None,
    typer.Option(
        "--takeover", help="Take the listeners of the process that runs, which drains.", show_default=False
    ),
]
EndWithStdin = Annotated[bool, typer.Option("--end-with-stdin", hidden=True, help="End when stdin does.")]
NoRevive = Annotated[bool, typer.Option("--no-revive", hidden=True, help="Do not start a killed Valkey.")]


class Misused(SlbError):
    """What was typed is nothing that the command takes: exit code 2."""


def check_not_alone(context: typer.Context, server: str) -> None:
    """Show the help of a group that is typed alone. Raises Misused then: who meant a client command is not to get a
    `server` and a Valkey in the home folder, and a unit that starts it so is to fail."""
    if not any(source_of(context, name) == "COMMANDLINE" for name in context.params):
        typer.echo(context.get_help())
        raise Misused(f"{context.command_path} takes a command; the server is {server}")


def source_of(context: typer.Context, name: str) -> str:
    """Where a parameter's value is from, such as COMMANDLINE or ENVIRONMENT; empty where it is not known."""
    source = context.get_parameter_source(name)
    return "" if source is None else source.name


def key_value(text: str, what: str = "") -> tuple[str, str]:
    """The parts of KEY=VALUE. Raises Misused, with `what` behind KEY=VALUE in its message."""
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise Misused(f"{text!r} is not KEY=VALUE{what}")
    return name, value


_FOR_COMMANDS = "with SLB_URL it looks meant for commands, which read SLB_TOKEN; here it has all rights"


def warn_of_variables() -> None:
    """Say on stderr which SLB_ variables are like a setting's and set nothing, and which one may set too much."""
    from slb.loading import misspellings, token_for_commands

    for variable, meant in misspellings(os.environ):
        print(f"slb: {variable} sets nothing; is {meant} meant?", file=sys.stderr)
    if (of_commands := token_for_commands(os.environ)) is not None:
        print(f"slb: {of_commands} is the token of slb serve: {_FOR_COMMANDS}", file=sys.stderr)


def log_variables() -> None:
    """The same, where lines on stderr have the form of the log."""
    import structlog

    from slb.loading import misspellings, token_for_commands

    _log = structlog.get_logger("slb")
    for variable, meant in misspellings(os.environ):
        _log.warning("variable_sets_nothing", variable=variable, meant=meant)
    if (of_commands := token_for_commands(os.environ)) is not None:
        _log.warning("variable_for_commands", variable=of_commands, hint=_FOR_COMMANDS)


def duration_option(flag: str, text: str) -> float:
    """Seconds of what was typed for `--flag`. Raises typer.BadParameter."""
    try:
        return seconds(text)
    except ValueError as error:
        hint = f"; is {text}s meant?" if text.isdecimal() else ""
        raise typer.BadParameter(f"{error}{hint}", param_hint=f"--{flag}") from None


def ttl_option(text: str) -> float:
    """Seconds of a lease, of what was typed for `--ttl`. Raises typer.BadParameter."""
    ttl = duration_option("ttl", text)
    if not MIN_TTL <= ttl <= MAX_TTL:
        raise typer.BadParameter(f"{text} is not from {MIN_TTL}s to {MAX_TTL // 3600}h", param_hint="--ttl")
    return ttl
