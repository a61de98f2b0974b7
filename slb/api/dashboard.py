"""The page for operators: / for browsers, and its files under /dashboard/. Open to all who reach the API: what it
shows it asks the API for, which wants a token."""

from aiohttp import hdrs, web
from aiohttp.typedefs import Handler

from slb.dashboard.files import HEADERS, INDEX, PageFile, page_files

_PREFIX = "/dashboard/"


@web.middleware
async def page_first(request: web.Request, handler: Handler) -> web.StreamResponse:
    """A middleware: answers with the page and its files, before anybody is asked for a token."""
    found = _asked_for(request) if request.method in (hdrs.METH_GET, hdrs.METH_HEAD) else None
    return await handler(request) if found is None else _reply(request, found)


def _asked_for(request: web.Request) -> PageFile | None:
    """What asks for / and does not want HTML gets the list of endpoints."""
    if request.path == "/" and "text/html" in request.headers.get(hdrs.ACCEPT, ""):
        return page_files()[INDEX]
    return page_files().get(request.path.removeprefix(_PREFIX)) if request.path.startswith(_PREFIX) else None


def _reply(request: web.Request, found: PageFile) -> web.Response:
    """304 where the client has it."""
    headers = {**HEADERS, hdrs.ETAG: found.etag}
    if found.etag in request.headers.get(hdrs.IF_NONE_MATCH, ""):
        return web.Response(status=304, headers=headers)
    headers[hdrs.CONTENT_TYPE] = found.content_type
    if found.zipped and "gzip" in request.headers.get(hdrs.ACCEPT_ENCODING, ""):
        return web.Response(body=found.zipped, headers={**headers, hdrs.CONTENT_ENCODING: "gzip"})
    return web.Response(body=found.content, headers=headers)
