"""The files of the page, read once, and the headers they are served with. Nothing here depends on the fleet: the
page asks the API for all data, with the token that its user types."""

import gzip
import hashlib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

_DIRECTORY = Path(__file__).with_name("page")
INDEX = "index.html"
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".LICENSE": "text/plain; charset=utf-8",
}
_WORTH_IT = 1024
"""Bytes from which on gzip saves a packet."""
HEADERS: Mapping[str, str] = {
    # Scripts, styles and data come from this slb alone. No inline script or style, no form that is sent, no frame.
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    # asked for again each time, and answered with 304 while this slb has the same files
    "Cache-Control": "no-cache",
    "Vary": "Accept, Accept-Encoding",
}


class PageFile(NamedTuple):
    """`zipped` is empty where it would save nothing."""

    content_type: str
    content: bytes
    zipped: bytes
    etag: str


@cache
def page_files() -> Mapping[str, PageFile]:
    """By name, such as `index.html` and `views/jobs.js`; those of other kinds are not served."""
    found = sorted(each for each in _DIRECTORY.rglob("*") if each.suffix in _TYPES)
    return {each.relative_to(_DIRECTORY).as_posix(): _read(each) for each in found}


def _read(path: Path) -> PageFile:
    content = path.read_bytes()
    zipped = gzip.compress(content, mtime=0) if len(content) >= _WORTH_IT else b""
    return PageFile(_TYPES[path.suffix], content, zipped, f'"{hashlib.sha256(content).hexdigest()[:32]}"')
