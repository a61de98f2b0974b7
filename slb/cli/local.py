"""`slb check-config`, `slb reset`: what needs the settings of `slb serve`, and no API."""

import asyncio
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from slb.cli.console import shown
from slb.cli.options import ConfigOption, DataDirOption, Misused, RedisOption, warn_of_variables
from slb.errors import ConfigError
from slb.names import counted

if TYPE_CHECKING:
    from slb.config import Settings
    from slb.control.embedded import EmbeddedServer


def check_config(config: ConfigOption = None, redis: RedisOption = None) -> None:
    """Show the settings `slb serve` would run with, secrets masked, and its Redis; fails where serve would."""
    from slb.control.private import check_own
    from slb.proxy.tls import check_files

    settings = _settings(config, redis, None)
    _checked_url(settings)
    check_files(settings)
    with suppress(OSError):  # one that cannot be had is reported with Redis
        check_own(settings.data_dir, "data_dir")
    found = _found_redis(settings)
    _check_addresses(settings)
    for name in type(settings).model_fields:
        typer.echo(f"{name} = {_shown(settings, name)}")
    typer.echo(f"\n{found}")


def reset(
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    config: ConfigOption = None,
    redis: RedisOption = None,
    data_dir: DataDirOption = None,
) -> None:
    """Empty Redis of all routes, settings and upstreams. Every instance follows: no route answers any more.
    The quota router's models stay: `slb quota models delete` removes one."""
    from slb.cli.redis_calls import reset_redis

    settings = _settings(config, redis, data_dir)
    _check_there(settings)
    if not yes and not sys.stdin.isatty():
        raise Misused("reset asks before it removes anything, and here is no terminal to ask on: use --yes")
    if not yes:
        typer.confirm(f"Remove every route from {_checked_url(settings)}?", abort=True)
    typer.echo(f"{counted(asyncio.run(reset_redis(settings)), 'route')} removed")


def _settings(config: Path | None, redis: str | None, data_dir: Path | None) -> "Settings":
    from slb.loading import load_settings

    warn_of_variables()
    return load_settings({"redis_url": redis, "data_dir": data_dir}, os.environ, config)


def _checked_url(settings: "Settings") -> str:
    """The URL of Redis without its secrets. Raises RedisRefused for one that can never work."""
    from slb.control import redis_url
    from slb.control.led import led

    url = settings.redis_url.get_secret_value()
    if redis_url.scheme_of(url) != redis_url.EMBEDDED:
        led(url)
    return redis_url.shown(url)


def _found_redis(settings: "Settings") -> str:
    """Which Redis it is, and whether it answers. Raises SlbError where `slb serve` would not start with it."""
    from slb.cli.redis_calls import redis_answers
    from slb.control.private import check_can_be_made

    if _is_embedded(settings):
        _embedded(settings).check()
        return f"Redis is embedded, for this machine only, in {_embedded(settings).directory}"
    try:
        check_can_be_made(settings.data_dir, "data_dir")
    except ConfigError as error:
        _note(f"{error}; slb serve starts all the same, and keeps no table on disk")
    answers = asyncio.run(redis_answers(settings))
    return f"Redis is at {_checked_url(settings)}{'' if answers else ', which does not answer'}"


def _check_addresses(settings: "Settings") -> None:
    """Raises CannotListen. An address in use is no fault: the instance that is checked may listen there."""
    from slb.listening import AddressInUse, bound_socket

    places = [("listen", settings.listen)] if "proxy" in settings.roles else []
    places += [("dns_listen", each) for each in settings.dns_listen if "dns" in settings.roles]
    for setting, address in (*places, ("api", settings.api)):
        try:
            bound_socket(address, setting).close()
        except AddressInUse as error:
            _note(f"{error}: slb serve starts only once it is free")


def _note(text: str) -> None:
    typer.echo(f"slb: {text}", err=True)


def _is_embedded(settings: "Settings") -> bool:
    from slb.control.redis_url import EMBEDDED, scheme_of

    return scheme_of(settings.redis_url.get_secret_value()) == EMBEDDED


def _check_there(settings: "Settings") -> None:
    """A data directory with a typo in it is not to be made, and found empty. Raises ConfigError."""
    if not _is_embedded(settings):
        return
    directory = _embedded(settings).directory
    try:
        is_there = directory.is_dir()
    except OSError as error:  # no permission to look, or a name that is too long
        raise ConfigError(f"data_dir: the embedded Valkey cannot use {directory}: {error}") from None
    if not is_there:
        raise ConfigError(f"data_dir: there is no embedded Valkey to reset in {directory}")


def _embedded(settings: "Settings") -> "EmbeddedServer":
    from slb.control.embedded import EmbeddedServer

    named = settings.redis_url.get_secret_value().removeprefix("embedded://")
    return EmbeddedServer(Path(named) if named else settings.data_dir)


def _shown(settings: "Settings", name: str) -> str:
    if name == "redis_url":
        return _checked_url(settings)
    if name == "tokens":
        return "; ".join(f"{each}: {token.shown()}" for each, token in settings.tokens.items()) or "-"
    value = settings.model_dump(mode="json")[name]
    return "-" if value in (None, [], {}) else shown(value)
