"""`slb token make`: a new token, and what the settings have of it."""

import json
import secrets
from typing import Annotated, Any

import typer

from slb.cli.options import Misused


def make(
    name: Annotated[str | None, typer.Option(help="What logs call it [a random one].", show_default=False)] = None,
    right: Annotated[
        list[str] | None,
        typer.Option(
            help="read, metrics, register, jobs, quota or admin; once for each [read, or register with --prefix].",
            show_default=False,
        ),
    ] = None,
    prefix: Annotated[
        list[str] | None,
        typer.Option(help="A path that register is for, and those below it; / is all.", show_default=False),
    ] = None,
) -> None:
    """Print a new token, and the lines of TOML that let it be known: they hold its SHA-256, and not the token."""
    from pydantic import TypeAdapter, ValidationError

    from slb.tokens import Token, TokenName, digest_of

    secret = f"slb_{secrets.token_urlsafe(32)}"
    name = name if name is not None else f"token-{secrets.token_hex(3)}"
    rights = right or (["register"] if prefix else ["read"])
    try:
        TypeAdapter(TokenName).validate_python(name)
        token = Token(rights=rights, prefixes=prefix or (), sha256=(digest_of(secret),))  # type: ignore[arg-type]
    except ValidationError as error:
        raise Misused(_fault(error)) from None
    typer.echo(f"{secret}\n\n[tokens.{name}]\nrights = {_list(token.rights)}")
    if token.prefixes:
        typer.echo(f"prefixes = {_list(token.prefixes)}")
    typer.echo(f'sha256 = "{token.sha256[0]}"')


def _list(texts: Any) -> str:
    """As TOML has it, whose texts JSON's are."""
    return json.dumps(list(texts))


def _fault(error: Any) -> str:
    fault = error.errors()[0]
    flags = {"rights": "--right: ", "prefixes": "--prefix: "}
    flag = flags.get(fault["loc"][0], "") if fault["loc"] else ""
    return f"{flag}{fault['msg'].removeprefix('Value error, ')}"
