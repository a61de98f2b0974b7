"""What an endpoint is: one declaration that both the router and the OpenAPI document are made from."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from aiohttp import web
from aiohttp.typedefs import Handler

from slb.errors import Reason


@dataclass(frozen=True)
class Endpoint:
    """`{path}`, `{member}` and `{model}` in a path take slashes too; `query` names what it takes behind a `?`.

    `reply` and `body` are types pydantic knows (None: not JSON); `reasons` are those of its own refusals.
    `description`: what `summary` has no room for, for /openapi.json and docs/reference/api.md.
    `is_followed`: it changes something, and answers 202 where this instance has not followed in time."""

    method: str
    path: str
    handler: Handler
    summary: str
    reply: Any = None
    body: Any = None
    reasons: tuple[Reason, ...] = ()
    is_open: bool = False
    content_type: str = "application/json"
    query: tuple[str, ...] = ()
    is_followed: bool = False
    description: str = ""

    def add_to(self, app: web.Application) -> None:
        """Route it; HEAD goes where GET goes."""
        pattern = self.path.replace("{path}", "{path:.*}").replace("{member}", "{member:.*}")
        pattern = pattern.replace("{model}", "{model:.*}")
        for method in ("GET", "HEAD") if self.method == "GET" else (self.method,):
            app.router.add_route(method, pattern, self.handler)


def open_paths(endpoints: Sequence[Endpoint]) -> frozenset[str]:
    """The paths everybody may ask for."""
    return frozenset(endpoint.path for endpoint in endpoints if endpoint.is_open)
