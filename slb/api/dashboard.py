"""The page for operators: / for browsers, and its files under /dashboard/. Open to all who reach the API: what it
shows it asks the API for, which wants a token."""

from aiohttp import hdrs, web
from aiohttp.typedefs import Handler

from slb.api.endpoints import Endpoint
from slb.dashboard.files import HEADERS, INDEX, page_files
from slb.errors import NO_ROUTE, Refused


class DashboardEndpoint:
    def endpoints(self) -> list[Endpoint]:
        path, kind = "/dashboard/{file}", "text/html, text/css, text/javascript"
        return [Endpoint("GET", path, self.file, None, None, (NO_ROUTE,), is_open=True, content_type=kind)]

    async def file(self, request: web.Request) -> web.Response:
        """A file of the page at /."""
        return _reply(request, request.match_info["file"])


@web.middleware
async def page_first(request: web.Request, handler: Handler) -> web.StreamResponse:
    """A middleware: answers a browser's GET of / with the page, and others as the handler does."""
    is_asked = request.path == "/" and request.method in (hdrs.METH_GET, hdrs.METH_HEAD)
    if is_asked and "text/html" in request.headers.get(hdrs.ACCEPT, ""):
        return _reply(request, INDEX)
    return await handler(request)


def _reply(request: web.Request, name: str) -> web.Response:
    """The file, 304 where the client has it. Raises Refused."""
    found = page_files().get(name)
    if found is None:
        raise Refused(NO_ROUTE, f"the page has no file {name[:200]!r}")
    headers = {**HEADERS, hdrs.ETAG: found.etag}
    if found.etag in request.headers.get(hdrs.IF_NONE_MATCH, ""):
        return web.Response(status=304, headers=headers)
    headers[hdrs.CONTENT_TYPE] = found.content_type
    if found.zipped and "gzip" in request.headers.get(hdrs.ACCEPT_ENCODING, ""):
        return web.Response(body=found.zipped, headers={**headers, hdrs.CONTENT_ENCODING: "gzip"})
    return web.Response(body=found.content, headers=headers)
