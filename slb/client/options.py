"""What may be given with a call besides its key: the arguments of aiohttp's `ClientSession.request`."""

import ssl as tls
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, TypedDict

from aiohttp import ClientMiddlewareType, ClientResponse, ClientTimeout, Fingerprint
from aiohttp.typedefs import LooseCookies, LooseHeaders, Query


class RequestOptions(TypedDict, total=False):
    """Each means what it means in aiohttp; but redirects are not followed unless `allow_redirects` is True."""

    params: Query
    data: Any
    json: Any
    cookies: LooseCookies | None
    headers: LooseHeaders | None
    skip_auto_headers: Iterable[str] | None
    allow_redirects: bool
    max_redirects: int
    compress: str | bool | None
    chunked: bool | None
    expect100: bool
    raise_for_status: bool | Callable[[ClientResponse], Awaitable[None]] | None
    read_until_eof: bool
    timeout: ClientTimeout | None
    ssl: tls.SSLContext | bool | Fingerprint
    server_hostname: str | None
    trace_request_ctx: object
    read_bufsize: int | None
    auto_decompress: bool | None
    max_line_size: int | None
    max_field_size: int | None
    middlewares: Sequence[ClientMiddlewareType] | None
