"""An endpoint, declared once for the router and the OpenAPI document; and the status of an answer to a change."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from slb.api.parts import ApiParts
from slb.api.replies import PROBES, json_reply
from slb.api.shapes import DryRun
from slb.errors import BAD_REQUEST, Reason, Refused
from slb.routing.mirror import Mirror
from slb.tokens import Right

NAME_IN_PATH = re.compile(r"\{(\w+)\}")
FOLLOWED, NOT_YET = 200, 202
_LONGEST_NAME = 64
_WITHIN = 1.0  # seconds an answer waits for this process's own mirror to show what was written


@dataclass(frozen=True)
class Endpoint:
    """A `{name}` in a path takes slashes too; `query` has the names of its query parameters. The docstring of
    `handler` stands in /openapi.json and docs/reference/api.md: its first paragraph is the summary, its second the
    description. `reply` and `body` are types pydantic knows (None: not JSON); `reasons` are those of its refusals,
    besides what every endpoint refuses, or every one with a body. `rights`: a token needs one of them, or `admin`.
    `is_followed`: its status is that of `followed`."""

    method: str
    path: str
    handler: Handler
    reply: Any = None
    body: Any = None
    reasons: tuple[Reason, ...] = ()
    rights: tuple[Right, ...] = ("admin",)
    is_open: bool = False
    content_type: str = "application/json"
    query: tuple[str, ...] = ()
    is_followed: bool = False
    status: int = FOLLOWED

    @property
    def summary(self) -> str:
        """The first paragraph of the handler's docstring, without its full stop."""
        return _paragraph(self.handler, 0).removesuffix(".")

    @property
    def description(self) -> str:
        """Its second paragraph, or an empty text."""
        return _paragraph(self.handler, 1)

    def add_to(self, app: web.Application) -> None:
        """Add its route to `app`; HEAD is served as GET."""
        pattern = NAME_IN_PATH.sub(r"{\1:.*}", self.path)
        for method in ("GET", "HEAD") if self.method == "GET" else (self.method,):
            app.router.add_route(method, pattern, self.handler)


DRY_RUN = ("dry_run",)
change = partial(Endpoint, is_followed=True, query=DRY_RUN)


def is_dry_run(request: web.Request) -> bool:
    """Whether nothing is to be written: the caller asks what would be refused. Raises Refused."""
    return is_true(request, "dry_run")


def is_true(request: web.Request, name: str) -> bool:
    """What the query says by this name; false where it says nothing. Raises Refused."""
    said = request.query.get(name, "false")
    if said not in ("true", "false"):
        raise Refused(BAD_REQUEST, f"{name}: has to be true or false")
    return said == "true"


def not_written() -> web.Response:
    """The answer to a dry run of what would not be refused."""
    return json_reply(DryRun(dry_run=True))


def known_query(endpoints: Sequence[Endpoint]) -> Middleware:
    """A middleware: refuses what an endpoint does not take in the query. A misspelt name of what narrows a request
    would be a request for more. Probes answer whatever they are asked with: they decide over traffic."""
    names = {endpoint.handler: endpoint.query for endpoint in endpoints if endpoint.path not in PROBES}

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        known = names.get(request.match_info.handler)
        if request.query and known is not None:
            for name in request.query:
                if name not in known:
                    takes = f"it takes {', '.join(known)}" if known else "it takes none"
                    raise Refused(BAD_REQUEST, f"{name[:_LONGEST_NAME]}: no parameter of this endpoint; {takes}")
                if len(request.query.getall(name)) > 1:
                    raise Refused(BAD_REQUEST, f"{name}: is given more than once")
        return await handler(request)

    return check


def _paragraph(handler: Handler, number: int) -> str:
    """A paragraph of its docstring on one line; empty where there is none."""
    paragraphs = (handler.__doc__ or "").split("\n\n")
    return " ".join(paragraphs[number].split()) if number < len(paragraphs) else ""


async def followed(parts: ApiParts, shows: Callable[[Mirror], bool]) -> int:
    """200 once the mirror shows it; 202 where it does not in time: it is written, and not used here yet."""
    return FOLLOWED if await parts.watcher.shown(shows, _WITHIN) else NOT_YET
