"""What is handed on to aiohttp: with a call, the arguments of `ClientSession.request`; with a session, its own."""

import ssl as tls
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, TypedDict

from aiohttp import (
    BaseConnector,
    BasicAuth,
    ClientMiddlewareType,
    ClientRequest,
    ClientResponse,
    ClientTimeout,
    ClientWebSocketResponse,
    Fingerprint,
    HttpVersion,
    TraceConfig,
)
from aiohttp.abc import AbstractCookieJar
from aiohttp.typedefs import LooseCookies, LooseHeaders, Query, StrOrURL


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


class HttpOptions(TypedDict, total=False):
    """Each means what it means in aiohttp. Not among them: `base_url`, as calls have paths; `loop` and others that
    aiohttp itself calls deprecated in favour of `timeout`."""

    connector: BaseConnector
    connector_owner: bool
    cookies: LooseCookies | None
    cookie_jar: AbstractCookieJar
    headers: LooseHeaders | None
    proxy: StrOrURL | None
    proxy_auth: BasicAuth | None
    auth: BasicAuth | None
    skip_auto_headers: Iterable[str] | None
    json_serialize: Callable[[Any], str]
    json_serialize_bytes: Callable[[Any], bytes] | None
    request_class: type[ClientRequest]
    response_class: type[ClientResponse]
    ws_response_class: type[ClientWebSocketResponse]
    version: HttpVersion
    raise_for_status: bool | Callable[[ClientResponse], Awaitable[None]]
    auto_decompress: bool
    trust_env: bool
    requote_redirect_url: bool
    trace_configs: list[TraceConfig] | None
    read_bufsize: int
    max_line_size: int
    max_field_size: int
    max_headers: int
    fallback_charset_resolver: Callable[[ClientResponse, bytes], str]
    middlewares: Sequence[ClientMiddlewareType]
