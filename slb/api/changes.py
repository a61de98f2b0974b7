"""GET /fleet/changes: what has happened in the fleet; and the notes of what callers of this API change."""

import re
from collections.abc import Mapping

from aiohttp import web

from slb.api.callers import HOLDER
from slb.api.endpoints import Endpoint
from slb.api.parts import ApiParts
from slb.api.replies import json_reply
from slb.api.shapes import ChangeShown, ChangesShown
from slb.control.change_log import Entry
from slb.errors import BAD_REQUEST, REDIS_DOWN, Refused
from slb.observe.changes import What

MOST = 200
_ID = re.compile(r"[0-9]{1,18}(-[0-9]{1,18})?")
_NUMBER = re.compile(r"[0-9]{1,6}")


class ChangesEndpoint:
    """Reads what all instances have written: see slb/control/change_log.py."""

    def __init__(self, parts: ApiParts) -> None:
        self._parts = parts

    def endpoints(self) -> list[Endpoint]:
        query, reasons = ("since", "most"), (BAD_REQUEST, REDIS_DOWN)
        return [
            Endpoint("GET", "/fleet/changes", self.show, ChangesShown, None, reasons, rights=("read",), query=query)
        ]

    async def show(self, request: web.Request) -> web.Response:
        """What has changed in the fleet, the newest last.

        Those after the entry `since`, or, without it, the last ones: `most` of them, 200 at most.
        """
        since, most = request.query.get("since", ""), request.query.get("most", str(MOST))
        if since and not _ID.fullmatch(since):
            raise Refused(BAD_REQUEST, "since: is no id of an entry")
        if not _NUMBER.fullmatch(most) or not int(most):
            raise Refused(BAD_REQUEST, "most: has to be a number from 1 on")
        found = await self._parts.read_changes(since, min(int(most), MOST))
        return json_reply(ChangesShown(changes=[_shown(each) for each in found]))


def _shown(entry: Entry) -> ChangeShown:
    return ChangeShown(
        id=entry.id,
        time=entry.time,
        instance=entry.instance,
        name=entry.name,
        what=entry.what,
        subject=entry.subject,
        detail=entry.detail,
        by=entry.by,
    )


def note(parts: ApiParts, request: web.Request, what: What, subject: str, detail: str = "") -> None:
    """Note what the caller of `request` has changed."""
    parts.metrics.changes.note(what, subject, detail, caller_of(request))


def in_words(changes: Mapping[str, object]) -> str:
    """None: it is taken back to its default."""
    return ", ".join(f"{name} unset" if value is None else f"{name}={value}" for name, value in changes.items())


def caller_of(request: web.Request) -> str:
    """The name of the caller's token; empty where none has a name."""
    return request[HOLDER].name
