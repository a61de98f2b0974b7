"""What a call asks for: the path a route is found by, and the target as it is sent."""

import re
from dataclasses import dataclass, field
from urllib.parse import quote

from aiohttp.typedefs import StrOrURL
from yarl import URL

from slb.client.refusals import CallRefused
from slb.errors import BAD_REQUEST, InvalidName
from slb.names import normal_path
from slb.routing.forwarded import forwarded

_PLAIN = re.compile(r"((?:/(?!\.\.?(?:[/?#]|\Z))[A-Za-z0-9\-._~]++)+)(\?[^#]*+)?")
"""A path that is its own normal form, and a query."""

_URL_CHARACTERS = "%/?:@!$&'()*+,;="  # of a path and a query (RFC 3986, 3.3, 3.4), beside letters, digits, -._~
_LONE_PERCENT = re.compile(r"%(?![0-9A-Fa-f]{2})")

_KEPT, _KEPT_LENGTH, _KEPT_URLS = 2048, 512, 8
"""Targets, their longest, and the URLs of each: what is remembered is bounded, and long targets rarely repeat."""


@dataclass(slots=True)
class Target:
    """`normal`: the path in its normal form. `path`, `query` (with its `?`, or empty): as the caller wrote them,
    escaped for a URL. `urls`: made once each, as making one costs more than the choice of an upstream."""

    normal: str
    path: str
    query: str
    urls: dict[tuple[str, str, bool], URL] = field(default_factory=dict)

    def at(self, origin: str, route: str = "/", strip: bool = False) -> URL:
        """Its URL at `origin`, `http://host:port`, or with a path. `strip`: without the path of `route`."""
        where = origin, route, strip
        url = self.urls.get(where)
        if url is None:
            if len(self.urls) >= _KEPT_URLS:
                self.urls.clear()
            # yarl would write it anew in its own way: `%7E` as `~`, without dot segments as it resolves them.
            text = f"{origin}{forwarded(self.path, route, strip)}{self.query}"
            url = self.urls[where] = URL(text, encoded=True)
        return url


class Targets:
    """Targets by what the caller wrote; those that repeat are taken apart once."""

    def __init__(self) -> None:
        self._known: dict[str, Target] = {}

    def get(self, written: StrOrURL) -> Target:
        """The target. Raises CallRefused where `written` is no path, or not a clear one."""
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
        return Target(path, path, _escaped(query))
    path, mark, query = text.partition("#")[0].partition("?")
    if not path.startswith("/"):
        raise CallRefused(BAD_REQUEST, f"{text!r}: give a path such as /products/1; the session picks the host")
    try:
        return Target(normal_path(path, encoded_controls=True), _escaped(path), _escaped(mark + query))
    except InvalidName as error:
        raise CallRefused(BAD_REQUEST, str(error)) from None


def _escaped(text: str) -> str:
    """Existing escapes stay (RFC 3986, 2.1); a `%` that begins none is escaped."""
    return quote(_LONE_PERCENT.sub("%25", text), safe=_URL_CHARACTERS, errors="surrogateescape")
