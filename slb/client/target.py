"""What a call asks for: the path a route is found by, and the target as it is sent."""

import re
from typing import NamedTuple

from aiohttp.typedefs import StrOrURL

from slb.client.refusals import CallRefused
from slb.errors import BAD_REQUEST, InvalidName
from slb.names import normal_path

_PLAIN = re.compile(r"((?:/(?!\.\.?(?:[/?#]|\Z))[A-Za-z0-9\-._~]+)+)(\?[^#]*)?")
"""A path that is its own normal form, and a query."""


class Target(NamedTuple):
    """normal: the path in its normal form. path: as the caller wrote it. query: with its `?`, or empty."""

    normal: str
    path: str
    query: str

    def without(self, prefix: str) -> str:
        """The target behind `prefix`, a normal path that this one starts with."""
        rest = self.normal[len(prefix) :] or "/"
        return rest + "/" * (self.path.endswith("/") and rest != "/") + self.query


def parse_target(written: StrOrURL) -> Target:
    """`/products/1?a=b`, as text or URL. Raises CallRefused where it is no path, or not a clear one."""
    text = written if isinstance(written, str) else str(written)
    plain = _PLAIN.fullmatch(text)
    if plain is not None:
        path, query = plain.groups("")
        return Target(path, path, query)
    return _parse_other(text)


def _parse_other(text: str) -> Target:
    path, mark, query = text.partition("#")[0].partition("?")
    if not path.startswith("/"):
        raise CallRefused(BAD_REQUEST, f"{text!r}: give a path such as /products/1; the session knows the hosts")
    if path.startswith("//"):  # which URLs read as the beginning of a host
        path = "/" + path.lstrip("/")
    try:
        return Target(normal_path(path, encoded_controls=True), path, mark + query)
    except InvalidName as error:
        raise CallRefused(BAD_REQUEST, str(error)) from None
