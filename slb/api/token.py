"""/token: what the token of a request may do."""

from aiohttp import web

from slb.api.callers import HOLDER
from slb.api.endpoints import Endpoint
from slb.api.replies import json_reply
from slb.api.shapes import TokenShown
from slb.tokens import RIGHTS


class TokenEndpoint:
    """For whoever shows only what its user may do."""

    def endpoints(self) -> list[Endpoint]:
        return [Endpoint("GET", "/token", self.show, TokenShown, rights=RIGHTS)]

    async def show(self, request: web.Request) -> web.Response:
        """What the token of this request may do."""
        holder = request[HOLDER]
        rights = [each for each in RIGHTS if each in holder.rights]
        return json_reply(TokenShown(name=holder.name, rights=rights, prefixes=list(holder.prefixes)))
