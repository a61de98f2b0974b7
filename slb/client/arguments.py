"""Checks of a session's arguments. Each function raises ConfigError, naming the argument."""

import os
from collections.abc import Iterable, Mapping
from ipaddress import ip_network
from pathlib import Path
from random import Random
from types import UnionType

from aiohttp import ClientTimeout
from yarl import URL

from slb.addresses import Network
from slb.client.options import HttpOptions
from slb.errors import ConfigError
from slb.observe.log import masked
from slb.observe.outbound import OutboundMetrics
from slb.setting_values import meant

_BENEATH_THE_CAP = 0.9  # where the buffer begins, as a share of max_outbound

_KINDS: dict[str, tuple[type | UnionType, str]] = {
    "redis_url": (str | None, "a text such as redis://10.0.0.5:6379/0"),
    "settings": (Mapping | None, "a mapping of route settings, such as {'retries': 0}"),
    "fallback": (str | None, "a text such as http://slb.internal:8080"),
    "node": (str | None, "a text"),
    "zone": (str, "a text; empty for none"),
    "timeout": (ClientTimeout | None, "an aiohttp.ClientTimeout"),
    "metrics": (OutboundMetrics | None, "an OutboundMetrics"),
    "rng": (Random | None, "a random.Random"),
}


def check_names(given: Iterable[str], own: Iterable[str]) -> None:
    """Check that the arguments `given` besides a session's `own` are aiohttp's. Raises TypeError."""
    for name in given:
        if name not in HttpOptions.__annotations__:
            raise TypeError(f"Session has no argument {name!r}{meant(name, (*own, *HttpOptions.__annotations__))}")


def check_kinds(**given: object) -> None:
    """Check that each argument is of its kind. Raises ConfigError."""
    for name, value in given.items():
        kind, expected = _KINDS[name]
        if not isinstance(value, kind):
            raise ConfigError(f"{name} = {masked(repr(value))}: {expected}")


def checked_fallback(fallback: str | None) -> str:
    """The URL without a slash at its end, as targets begin with one; empty where there is none."""
    if fallback is None:
        return ""
    try:
        url = URL(fallback)
    except ValueError as error:
        raise ConfigError(f"fallback = {masked(fallback)!r}: {error}") from None
    if url.scheme not in ("http", "https") or not url.host or url.query_string or url.fragment:
        raise ConfigError(f"fallback = {masked(fallback)!r}: a URL such as http://slb.internal:8080")
    return str(url).rstrip("/")


def checked_width(max_outbound: object, buffer_from: object) -> tuple[int, int]:
    """The cap, and the number of calls that may be out before others wait."""
    cap = _whole(max_outbound)
    if cap is None or cap < 0:
        raise ConfigError(f"max_outbound = {max_outbound!r}: a whole number; 0 is no cap")
    if buffer_from is None:
        return cap, max(1, int(cap * _BENEATH_THE_CAP)) if cap else 0
    width = _whole(buffer_from)
    if width is None or not 1 <= width <= (cap or width):
        raise ConfigError(f"buffer_from = {buffer_from!r}: from 1 to max_outbound, which is {cap}")
    return cap, width


def checked_seconds(name: str, value: object) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool) and value > 0:
        return value
    raise ConfigError(f"{name} = {value!r}: seconds, more than 0")


def checked_networks(written: Iterable[str]) -> tuple[Network, ...]:
    if isinstance(written, str) or not isinstance(written, Iterable):
        raise ConfigError(f"upstream_networks = {written!r}: give a list")
    try:
        return tuple(ip_network(each) for each in written)
    except ValueError as error:
        raise ConfigError(f"upstream_networks: {error}") from None


def checked_folder(data_dir: object) -> Path | None:
    """The folder, given as text or path-like; None for none."""
    if data_dir is None:
        return None
    folder = os.fspath(data_dir) if isinstance(data_dir, str | os.PathLike) else None
    if not isinstance(folder, str) or not folder:
        raise ConfigError(f"data_dir = {data_dir!r}: a folder, as text or a path")
    return Path(folder)


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
