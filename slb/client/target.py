"""What a call asks for: the path a route is found by, and the target as it is sent."""

import re

from aiohttp.typedefs import StrOrURL
from yarl import URL

from slb.client.refusals import CallRefused
from slb.errors import BAD_REQUEST, InvalidName
from slb.names import normal_path

_PLAIN = re.compile(r"((?:/(?!\.\.?(?:[/?#]|\Z))[A-Za-z0-9\-._~]++)+)(\?[^#]*+)?")
"""A path that is its own normal form, and a query."""

_KEPT = 2048
_KEPT_LENGTH = 512
_KEPT_URLS = 8
"""Targets, their longest, and the URLs of each: what is remembered is bounded, and long targets rarely repeat."""


class Target:
    """normal: the path in its normal form. path: as the caller wrote it. query: with its `?`, or empty. urls: by
    origin, as aiohttp is given them: taking a URL apart costs more than all that is decided here."""

    __slots__ = ("normal", "path", "query", "urls")

    def __init__(self, normal: str, path: str, query: str) -> None:
        self.normal = normal
        self.path = path
        self.query = query
        self.urls: dict[str, URL] = {}

    def at(self, origin: str) -> URL:
        """Where it is asked for at `origin`: `http://host:port`, with a path of its own or without."""
        url = self.urls.get(origin)
        if url is None:
            if len(self.urls) >= _KEPT_URLS:
                self.urls.clear()
            url = self.urls[origin] = URL(f"{origin}{self.path}{self.query}")
        return url

    def without(self, prefix: str, origin: str) -> URL:
        """The same, of what is behind `prefix`, a normal path that this one starts with."""
        rest = self.normal[len(prefix) :] or "/"
        slash = "/" if self.path.endswith("/") and rest != "/" else ""
        return URL(f"{origin}{rest}{slash}{self.query}")


class Targets:
    """Targets by what the caller wrote; those that repeat are taken apart once."""

    def __init__(self) -> None:
        self._known: dict[str, Target] = {}

    def get(self, written: StrOrURL) -> Target:
        """Raises CallRefused where it is no path, or not a clear one."""
        text = written if isinstance(written, str) else str(written)
        target = self._known.get(text)
        if target is None:
            target = parse_target(text)
            if len(text) <= _KEPT_LENGTH:
                if len(self._known) >= _KEPT:
                    self._known.clear()
                self._known[text] = target
        return target


def parse_target(text: str) -> Target:
    """`/products/1?a=b` taken apart. Raises CallRefused."""
    plain = _PLAIN.fullmatch(text)
    if plain is not None:
        path, query = plain.groups("")
        return Target(path, path, query)
    path, mark, query = text.partition("#")[0].partition("?")
    if not path.startswith("/"):
        raise CallRefused(BAD_REQUEST, f"{text!r}: give a path such as /products/1; the session knows the hosts")
    if path.startswith("//"):  # which URLs read as the beginning of a host
        path = "/" + path.lstrip("/")
    try:
        return Target(normal_path(path, encoded_controls=True), path, mark + query)
    except InvalidName as error:
        raise CallRefused(BAD_REQUEST, str(error)) from None
