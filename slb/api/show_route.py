"""A route as the API shows it."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from slb.admission.shown import Decision
from slb.api.parts import ApiParts
from slb.api.shapes import AttributesShown, HealthShown, MemberShown, RouteShown, SettingSource
from slb.balance.eligible import condition
from slb.balance.upstream import LiveUpstream
from slb.config import Settings
from slb.dns_names import is_dns_name
from slb.model import RouteRecord, RouteSettings, Upstream
from slb.routing.mirror import Mirror

_WORST_FIRST: tuple[HealthShown, ...] = ("down", "ejected", "stuck", "failing", "busy", "up", "unchecked")


def show_route(parts: ApiParts, path: str, record: RouteRecord) -> RouteShown:
    """The settings in force for `record`, where each comes from, and its members as the mirror knows them."""
    mirror, members = parts.mirror, sorted(record.members)
    effective_settings, sources, faults = _in_effect(parts, path, record)
    route = mirror.table.routes.get(path)
    return RouteShown(
        path=path,
        settings=effective_settings.model_dump(mode="json"),
        sources=sources,
        members=[_show_member(mirror, each, effective_settings) for each in members if not is_dns_name(each)],
        names=[each for each in members if is_dns_name(each)],
        panic=route is not None and route.panic,
        faults=faults,
    )


def describe_route(parts: ApiParts, path: str) -> dict[str, Any]:
    """What the fleet's view shows of a route besides its traffic: `settings`, `sources`, `faults`."""
    settings, sources, faults = _in_effect(parts, path, parts.mirror.records.get(path, RouteRecord()))
    return {"settings": settings.model_dump(mode="json"), "sources": sources, "faults": faults}


def _in_effect(
    parts: ApiParts, path: str, record: RouteRecord
) -> tuple[RouteSettings, dict[str, SettingSource], list[str]]:
    """The settings in effect, where each comes from, and what is at fault in those that were written."""
    settings = parts.settings
    kept, faults = parts.mirror.effective.fields(path, record)
    sources = {name: _source(settings, path, name, kept) for name in RouteSettings.model_fields}
    made = settings.route_settings(path, kept)
    return made, sources, [*faults, *made.unused]


def _source(settings: Settings, path: str, name: str, stored: dict[str, Any]) -> SettingSource:
    if name in stored:
        return "hash"
    return (
        "file" if name in settings.routes.get(path, {}) else "defaults" if name in settings.defaults else "built_in"
    )


def _show_member(mirror: Mirror, member: str, settings: RouteSettings) -> MemberShown:
    live = mirror.upstream(member) or LiveUpstream(Upstream.of(member, mirror.attributes.get(member)))
    return {**show_attributes(live), "health": condition(live, settings), "failures": live.failures}


def as_any_sees(shown: RouteShown, elsewhere: Sequence[RouteShown]) -> RouteShown:
    """`shown` of a supervisor, which sends no requests, with what its workers know: the worst health of each
    member, the most failures, and panic where any worker sees it."""
    views: defaultdict[str, list[MemberShown]] = defaultdict(list)
    for each in (shown, *elsewhere):
        for member in each["members"]:
            views[member["member"]].append(member)
    for member in shown["members"]:
        seen = views[member["member"]]
        member["health"] = min((view["health"] for view in seen), key=_WORST_FIRST.index)
        member["failures"] = max(view["failures"] for view in seen)
    return {**shown, "panic": any(each["panic"] for each in (shown, *elsewhere))}


def latest(decisions: Iterable[Decision | None]) -> Decision | None:
    """The one made last; where a policy decides in each process for itself, with all requests in flight."""
    known = [each for each in decisions if each is not None]
    made = [(each["seconds_ago"], each) for each in known if each["seconds_ago"] is not None]
    if made:
        return min(made, key=lambda pair: pair[0])[1]
    inflight: Counter[str] = Counter()
    for each in known:
        inflight.update({member["member"]: member["score"] or 0 for member in each["members"]})
    for member in known[0]["members"] if known else ():
        member["score"] = inflight[member["member"]]
    return known[0] if known else None


def leases_by(names: Sequence[str], seconds: Sequence[float | None] | None) -> dict[str, float] | None:
    """The seconds that are left, by name, of those that have a lease; None where Redis is away."""
    if seconds is None:
        return None
    return {name: left for name, left in zip(names, seconds, strict=True) if left is not None}


def show_attributes(live: LiveUpstream) -> AttributesShown:
    """The attributes of an upstream, which are the same in all its routes."""
    spec = live.spec
    return AttributesShown(
        member=live.member,
        weight=spec.weight,
        slots=spec.slots,
        zone=spec.zone,
        node=spec.node,
        drain=spec.drain,
        joined=spec.joined,
        inflight=live.inflight,
    )
