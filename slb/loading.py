"""Settings out of a TOML file, the environment and flags: which is read where, and one line for what is wrong."""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

from pydantic import SecretStr, ValidationError

from slb.config import Settings
from slb.errors import ConfigError
from slb.model import RouteSettings
from slb.regular_files import read_file
from slb.setting_values import closest, meant
from slb.token_files import Note, read_tokens

_IN_ENVIRONMENT = sorted(Settings.model_fields.keys() - {"defaults", "routes", "tokens"})
_IN_THE_FILE = (
    "route settings are not read from the environment: write them into a TOML file, under [defaults] or "
    '[routes."/path"], and name it with --config or SLB_CONFIG; or set them on a route with slb route set'
)
_TABLES = {
    "SLB_DEFAULTS": _IN_THE_FILE,
    "SLB_ROUTES": _IN_THE_FILE,
    "SLB_TOKENS": "tokens are not read from the environment: write them into a TOML file, under [tokens.NAME], and "
    "name it with --config or SLB_CONFIG, or with SLB_TOKENS_PATH",
}
_MOST_NAMED = 10
_SECRETS = frozenset(
    name
    for name, field in Settings.model_fields.items()
    if SecretStr in (field.annotation, *get_args(field.annotation))
)
_AS_FLAGS = {
    "redis": "redis_url",
    "tls_certificate": "tls_certificates",
    "api_tls_certificate": "api_tls_certificates",
}
"""Settings whose flags have another name: the flags' names are read in the environment too."""


def load_settings(
    flags: Mapping[str, Any], environ: Mapping[str, str], config: Path | None = None, note: Note = lambda file: None
) -> Settings:
    """Settings from a TOML file, the environment and flags (None = not given). `note` is called with each file
    before it is read. Raises ConfigError, one line."""
    merged = {**_from_file(config, note), **_from_environment(environ, note)}
    merged.update({name: value for name, value in flags.items() if value is not None})
    merged.update(_tokens(merged, note))
    try:
        return Settings(**merged)
    except ValidationError as error:
        raise ConfigError(_first_fault(error)) from None


def _tokens(merged: Mapping[str, Any], note: Note) -> dict[str, Any]:
    tables, path = merged.get("tokens"), merged.get("tokens_path")
    if path is not None and not isinstance(path, str | Path):
        return {}  # refused with all else
    tokens = read_tokens(tables, path, note)
    return {} if tokens is None else {"tokens": tokens}


def _first_fault(error: ValidationError) -> str:
    faults = error.errors()
    unknown = [
        str(fault["loc"][0]) for fault in faults if fault["type"] == "extra_forbidden" and len(fault["loc"]) == 1
    ]
    if unknown:  # all of them: an older slb that is given a newer file does not know several
        named = [f"{name}: there is no setting of this name{_instead(name)}" for name in unknown[:_MOST_NAMED]]
        more = len(unknown) - len(named)
        return "; ".join([*named, *([f"and {more} more"] if more else [])])
    fault = faults[0]
    if not fault["loc"]:  # two settings that do not go together; the message names them
        return str(fault["msg"]).removeprefix("Value error, ")
    is_token = fault["loc"][0] == "tokens"
    name = ".".join(str(part) for part in fault["loc"][: 3 if is_token else 1])
    if fault["type"] == "extra_forbidden":
        return f"{name}: there is no setting of this name{_instead(name)}"
    message = fault["msg"].removeprefix("Value error, ")
    if is_token or isinstance(fault["input"], Mapping):  # may be a secret, or long; the message names what is wrong
        return f"{name}: {message}"
    shown = "**********" if name in _SECRETS else repr(fault["input"])
    return f"{name} = {shown}: {message}"


def _instead(name: str) -> str:
    if name in RouteSettings.model_fields:
        return '; on a route there is: put it under [defaults] or [routes."/path"]'
    return meant(_AS_FLAGS.get(name, name), Settings.model_fields)


def _from_file(path: Path | None, note: Note) -> dict[str, Any]:
    if path is None:
        return {}
    note(path)
    try:
        return tomllib.loads(read_file(path).decode())
    except OSError as error:
        raise ConfigError(f"config file {path}: {error.strerror}") from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError(f"config file {path}: {error}") from None


def _from_environment(environ: Mapping[str, str], note: Note) -> dict[str, Any]:
    """From SLB_NAME, or SLB_NAME_FILE, which names a file with the value. Other SLB_ names are ignored: Kubernetes
    sets SLB_PORT and the like for a service called slb."""
    named_by: dict[str, str] = {}
    for variable in sorted(environ):
        if why := _TABLES.get(variable.removesuffix("_FILE")):
            raise ConfigError(f"{variable}: {why}")
        name = _named(variable)
        if name is not None and (other := named_by.setdefault(name, variable)) != variable:
            raise ConfigError(f"{other} and {variable} are both set: keep one of them")
    files = [variable for variable in named_by.values() if _names_a_file(variable)]
    for variable in files:
        note(Path(environ[variable]))
    return {
        name: file_value(variable, environ[variable]) if variable in files else environ[variable]
        for name, variable in named_by.items()
    }


def _names_a_file(variable: str) -> bool:
    """Whether it names a file with the value. Of a setting that is a file's name itself, it is the value."""
    return variable.endswith("_FILE") and variable.removeprefix("SLB_").lower() not in _IN_ENVIRONMENT


def _named(variable: str) -> str | None:
    if not variable.startswith("SLB_"):
        return None
    name = variable.removeprefix("SLB_").lower()
    name = name.removesuffix("_file") if _names_a_file(variable) else name
    name = _AS_FLAGS.get(name, name)
    return name if name in _IN_ENVIRONMENT else None


_OF_COMMANDS = frozenset({"SLB_URL", "SLB_TOKEN", "SLB_TOKEN_FILE", "SLB_CA"})
"""What commands read that ask an slb."""


def token_for_commands(environ: Mapping[str, str]) -> str | None:
    """The variable whose token a server would take as its own, with all rights, where the environment looks like
    that of somebody who has set it for commands; None where it does not."""
    found = [name for name in ("SLB_API_TOKEN", "SLB_API_TOKEN_FILE") if name in environ]
    return found[0] if found and environ.get("SLB_URL") else None


def misspellings(environ: Mapping[str, str]) -> list[tuple[str, str]]:
    """SLB_ variables that set nothing, though each is nearly one that would: itself, and that one."""
    found = []
    for variable in sorted(environ):
        if variable.startswith("SLB_") and variable not in _OF_COMMANDS and _named(variable) is None:
            suffix = "_FILE" if variable.endswith("_FILE") else ""
            name = variable.removeprefix("SLB_").removesuffix(suffix).lower()
            like = closest(name, _IN_ENVIRONMENT)
            found += [(variable, f"SLB_{each.upper()}{suffix}") for each in like]
    return found


def file_value(variable: str, path: str) -> str:
    """The text of the file that `variable` names. Raises ConfigError, also for an empty one: not mounted yet."""
    try:
        value = read_file(Path(path)).decode().strip()
    except OSError as error:
        raise ConfigError(f"{variable}: {path} cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{variable}: {path}: {error}") from None
    if not value:
        raise ConfigError(f"{variable}: {path} is empty")
    return value
