"""What a token with the right `register` may touch: routes below its prefixes, and what no other route shares."""

from collections.abc import Mapping

from aiohttp import web

from slb.api.callers import HOLDER
from slb.errors import FORBIDDEN, Refused
from slb.routing.mirror import Mirror


def check_covered(request: web.Request, path: str, place: str = "path") -> None:
    """Raises Refused where the caller may not register at the route `path`; `place`: where that was written."""
    holder = request[HOLDER]
    if not holder.covers(path):
        raise Refused(FORBIDDEN, f"{place}: the token {holder.name} lacks the right register for {path}")


def check_attributes(request: web.Request, mirror: Mirror, given: Mapping[str, Mapping[str, str]]) -> None:
    """Raises Refused where the caller would change attributes of an upstream that a route names which it does not
    cover, as far as this process knows; `given`: attributes by member. Looks at every route where it would change
    any of an upstream in use."""
    holder = request[HOLDER]
    if "admin" in holder.rights:
        return
    changed = {
        member: names
        for member, attributes in given.items()
        if mirror.uses(member) and (names := _changed(mirror, member, attributes))
    }
    for route in mirror.routes_of(changed) if changed else ():
        if not holder.covers(route.path):
            member = next(each for each in changed if each in mirror.records[route.path].members)
            why = "has routes, in all of which that holds, for which"
            what = f"{', '.join(changed[member])}: {member} {why} the token {holder.name} lacks the right register"
            raise Refused(FORBIDDEN, what)


def _changed(mirror: Mirror, member: str, attributes: Mapping[str, str]) -> list[str]:
    stored = mirror.attributes.get(member, {})
    return [name for name, value in attributes.items() if stored.get(name) != value]
