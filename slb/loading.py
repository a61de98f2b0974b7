"""Settings out of a TOML file, the environment and flags: which is read where, and one line for what is wrong."""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from slb.config import Settings
from slb.errors import ConfigError
from slb.model import RouteSettings
from slb.setting_values import closest, meant

_IN_ENVIRONMENT = sorted(Settings.model_fields.keys() - {"defaults", "routes"})
_TABLES = ("SLB_DEFAULTS", "SLB_ROUTES")
_IN_THE_FILE = (
    "route settings are not read from the environment: write them into a TOML file, under [defaults] or "
    '[routes."/path"], and name it with --config or SLB_CONFIG; or set them on a route with slb route set'
)
_SECRETS = ("api_token", "redis_url", "jobs_callback_secrets", "jobs_tasks_secret", "trace_headers")
_AS_FLAGS = {"redis": "redis_url", "tls_certificate": "tls_certificates"}
"""Settings whose flags have another name: the flags' names are read in the environment too."""


def load_settings(flags: Mapping[str, Any], environ: Mapping[str, str], config: Path | None = None) -> Settings:
    """Settings from a TOML file, the environment and flags (None = not given). Raises ConfigError, one line."""
    merged = {**_from_file(config), **_from_environment(environ)}
    merged.update({name: value for name, value in flags.items() if value is not None})
    try:
        return Settings(**merged)
    except ValidationError as error:
        raise ConfigError(_first_fault(error)) from None


def _first_fault(error: ValidationError) -> str:
    fault = error.errors()[0]
    if not fault["loc"]:  # two settings that do not go together; the message names them
        return str(fault["msg"]).removeprefix("Value error, ")
    name = ".".join(str(part) for part in fault["loc"][:1])
    if fault["type"] == "extra_forbidden":
        return f"{name}: there is no setting of this name{_instead(name)}"
    message = fault["msg"].removeprefix("Value error, ")
    if isinstance(fault["input"], Mapping):  # may be long; the message names what is wrong in it
        return f"{name}: {message}"
    shown = "**********" if name in _SECRETS else repr(fault["input"])
    return f"{name} = {shown}: {message}"


def _instead(name: str) -> str:
    if name in RouteSettings.model_fields:
        return '; on a route there is: put it under [defaults] or [routes."/path"]'
    return meant(_AS_FLAGS.get(name, name), Settings.model_fields)


def _from_file(path: Path | None) -> dict[str, Any]:
    if path is None:
        return {}
    try:
        return tomllib.loads(path.read_text())
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError(f"config file {path}: {error}") from None


def _from_environment(environ: Mapping[str, str]) -> dict[str, Any]:
    """From SLB_NAME, or SLB_NAME_FILE, which names a file with the value. Other SLB_ names are ignored: Kubernetes
    sets SLB_PORT and the like for a service called slb."""
    named_by: dict[str, str] = {}
    for variable in sorted(environ):
        if variable.removesuffix("_FILE") in _TABLES:
            raise ConfigError(f"{variable}: {_IN_THE_FILE}")
        name = _named(variable)
        if name is not None and (other := named_by.setdefault(name, variable)) != variable:
            raise ConfigError(f"{other} and {variable} are both set: keep one of them")
    return {
        name: file_value(variable, environ[variable]) if variable.endswith("_FILE") else environ[variable]
        for name, variable in named_by.items()
    }


def _named(variable: str) -> str | None:
    name = variable.removeprefix("SLB_").lower().removesuffix("_file") if variable.startswith("SLB_") else ""
    name = _AS_FLAGS.get(name, name)
    return name if name in _IN_ENVIRONMENT else None


def misspellings(environ: Mapping[str, str]) -> list[tuple[str, str]]:
    """SLB_ variables that set nothing, though each is nearly one that would: itself, and that one."""
    found = []
    for variable in sorted(environ):
        if variable.startswith("SLB_") and _named(variable) is None:
            suffix = "_FILE" if variable.endswith("_FILE") else ""
            name = variable.removeprefix("SLB_").removesuffix(suffix).lower()
            like = closest(name, _IN_ENVIRONMENT)
            found += [(variable, f"SLB_{each.upper()}{suffix}") for each in like]
    return found


def file_value(variable: str, path: str) -> str:
    """The text of the file that `variable` names. Raises ConfigError, also for an empty one: not mounted yet."""
    try:
        value = Path(path).read_text().strip()
    except OSError as error:
        raise ConfigError(f"{variable}: {path} cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{variable}: {path}: {error}") from None
    if not value:
        raise ConfigError(f"{variable}: {path} is empty")
    return value
