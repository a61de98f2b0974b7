"""/register: upstreams come and go. All or nothing, and answered when this process's own mirror shows it."""

from collections.abc import Collection, Mapping, Sequence
from itertools import islice

import structlog
from aiohttp import web

from slb.addresses import is_address
from slb.api.bodies import AnyRegistration, RegisterBody, attributes_of, read_json, registrations
from slb.api.callers import RENEWS, named
from slb.api.changes import in_words, note
from slb.api.covered import check_attributes, check_covered
from slb.api.endpoints import Endpoint, change, followed, is_dry_run, not_written
from slb.api.instances import KnownInstances
from slb.api.parts import ApiParts
from slb.api.replies import json_reply
from slb.api.shapes import DeregisterReply, RegisterReply
from slb.control.registry import ToRegister
from slb.control.slices import Slices
from slb.dns_names import is_dns_name
from slb.errors import BAD_REQUEST, REDIS_DOWN, TOO_MANY_MODELS, Refused
from slb.job import model_of
from slb.names import split_member
from slb.observe.changes import What
from slb.routing.mirror import Mirror

_MOST_NOTED = 20
"""Entries of one list that are noted each."""

_log = structlog.get_logger("slb.api")


class RegisterEndpoint:
    """POST adds, DELETE removes; one object, or a list in the older form."""

    def __init__(self, parts: ApiParts) -> None:
        self._parts = parts
        self._known = KnownInstances(parts.instances, parts.address_rules)

    def endpoints(self) -> list[Endpoint]:
        adding = (TOO_MANY_MODELS, REDIS_DOWN)
        return [
            change("POST", "/register", self.add, RegisterReply, RegisterBody, adding, ("register",)),
            change("DELETE", "/register", self.remove, DeregisterReply, RegisterBody, (REDIS_DOWN,), ("register",)),
        ]

    async def add(self, request: web.Request) -> web.Response:
        """Add upstreams to routes.

        With `ttl` (seconds) the registration ends unless it is made again in time. A list is all or nothing.
        """
        is_list, asked = await self._asked(request)
        await _check_paths(request, is_list, asked)
        slices = Slices()
        for index, each in enumerate(asked):
            fault = self._length_fault(each) or self._target_fault(each)
            if fault:
                raise Refused(BAD_REQUEST, f"[{index}].{fault}" if is_list else fault)
            await slices.rest()
        entries = [(each.path, each.member, attributes_of(each)) for each in asked]
        check_attributes(request, self._parts.mirror, {member: attributes for _, member, attributes in entries})

        self._check_room(asked)
        if is_dry_run(request):
            return not_written()

        def stand(mirror: Mirror) -> bool:
            return all(_shows(mirror, *entry) for entry in entries)

        mirror, registry = self._parts.mirror, self._parts.registry
        stood = stand(mirror)
        before = {member: mirror.attributes.get(member, {}) for _, member, _ in entries if mirror.uses(member)}
        added, differing = await registry.register_and_compare(entries, [each.ttl for each in asked])
        status = await followed(self._parts, stand)
        request[RENEWS] = stood and not any(added)
        self._note(request, "registered", asked, added)
        self._note_attributes(request, entries, before, differing)
        return _reply(request, "added", asked, added, is_list, status)

    async def remove(self, request: web.Request) -> web.Response:
        """Remove upstreams from routes."""
        is_list, asked = await self._asked(request)
        await _check_paths(request, is_list, asked)
        if is_dry_run(request):
            return not_written()
        entries = [(each.path, each.member) for each in asked]
        removed = await self._parts.registry.deregister_all(entries)
        status = await followed(self._parts, lambda mirror: not any(_shows(mirror, *each, {}) for each in entries))
        self._note(request, "deregistered", asked, removed)
        return _reply(request, "removed", asked, removed, is_list, status)

    def _note(
        self, request: web.Request, what: What, asked: Sequence[AnyRegistration], done: Sequence[bool]
    ) -> None:
        """Of a long list the first, and how many more."""
        changed = [each for each, is_new in zip(asked, done, strict=True) if is_new]
        for each in changed[:_MOST_NOTED]:
            note(self._parts, request, what, each.member, each.path)
        if len(changed) > _MOST_NOTED:
            note(self._parts, request, what, f"{len(changed) - _MOST_NOTED} more", changed[-1].path)

    def _note_attributes(
        self,
        request: web.Request,
        entries: Sequence[ToRegister],
        before: Mapping[str, Mapping[str, str]],
        differing: Collection[str],
    ) -> None:
        """`before`: what the mirror showed of upstreams that were known; those of a new one came with it."""
        changed = {member: new for _, member, new in entries if member in differing and member in before}
        for member, new in islice(changed.items(), _MOST_NOTED):
            others = {name: value for name, value in new.items() if before[member].get(name) != value}
            # The mirror may have been behind Redis: then any of them may be what has changed.
            note(self._parts, request, "attributes_changed", member, in_words(others or new))
        if len(changed) > _MOST_NOTED:
            note(self._parts, request, "attributes_changed", f"{len(changed) - _MOST_NOTED} more")

    async def _asked(self, request: web.Request) -> tuple[bool, Sequence[AnyRegistration]]:
        data = await read_json(request, self._parts.settings.head_timeout)
        return isinstance(data, list), registrations(data)

    def _check_room(self, asked: Sequence[AnyRegistration]) -> None:
        """Raises Refused where a route would be one model of jobs too many: none of its jobs would be taken."""
        jobs, records = self._parts.jobs, self._parts.mirror.records
        if jobs is not None:
            new = {each.path for each in asked if each.path not in records}
            jobs.check_room([model for path in new if (model := model_of(path)) is not None])

    def _length_fault(self, asked: AnyRegistration) -> str | None:
        """A path that no request line can carry would be kept in Redis for nothing."""
        longest = self._parts.settings.max_request_line
        return f"path: is longer than max_request_line ({longest})" if len(asked.path) > longest else None

    def _target_fault(self, asked: AnyRegistration) -> str | None:
        """Of addresses only: a name is judged whenever it is resolved."""
        if is_dns_name(asked.member):
            return None
        _, host, port = split_member(asked.member)
        if not is_address(host):
            return None
        refusal = self._parts.address_rules.refusal(host, port)
        if refusal is None and (instance := self._known.listener_at(host, port)):
            refusal = f"{host} port {port} is a listener of the slb instance {instance}"
        return f"{asked.address_field}: {refusal}" if refusal else None


async def _check_paths(request: web.Request, is_list: bool, asked: Sequence[AnyRegistration]) -> None:
    """Raises Refused where the caller may not register at one of them. A thousand paths and a hundred prefixes are
    some 10 ms of work: in slices."""
    slices = Slices()
    for index, each in enumerate(asked):
        check_covered(request, each.path, f"[{index}].path" if is_list else "path")
        await slices.rest()


def _shows(mirror: Mirror, path: str, member: str, attributes: dict[str, str]) -> bool:
    record = mirror.records.get(path)
    if record is None or member not in record.members:
        return False
    return attributes.items() <= dict(mirror.attributes.get(member, {})).items()


def _reply(
    request: web.Request,
    verb: str,
    asked: Sequence[AnyRegistration],
    done: Sequence[bool],
    is_list: bool,
    status: int,
) -> web.Response:
    for each, changed in zip(asked, done, strict=True):
        if changed:
            _log.info(f"upstream_{verb}", path=each.path, upstream=each.member, **named(request))
    replies = [each.reply(verb, changed) for each, changed in zip(asked, done, strict=True)]
    return json_reply(replies if is_list else replies[0], status)
