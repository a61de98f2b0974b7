"""/instances: the instances that are alive, and their addresses."""

from collections.abc import Iterator, Sequence

from aiohttp import web

from slb.addresses import AddressRules, unwrapped
from slb.api.endpoints import Endpoint
from slb.api.parts import ApiParts
from slb.api.replies import json_reply
from slb.api.shapes import InstanceShown, InstancesShown
from slb.control.instances import InstanceInfo, Instances
from slb.errors import RedisUnavailable
from slb.setting_values import host_port


class KnownInstances:
    def __init__(self, instances: Instances, rules: AddressRules) -> None:
        self._instances = instances
        self._rules = rules
        self._judged: Sequence[InstanceInfo] = ()
        self._listeners: list[tuple[str, int, str]] = []

    def listener_at(self, ip: str, port: int) -> str | None:
        """The id of an instance, of those last known, that listens on `ip`:`port`."""
        address = unwrapped(ip)
        known = self._instances.known
        if known is not self._judged:
            self._judged = known
            self._listeners = [listener for each in known for listener in self._listeners_of(each)]
        for bound, own_port, instance in self._listeners:
            if own_port == port and self._rules.is_listener(address, port, bound, own_port):
                return instance
        return None

    def _listeners_of(self, instance: InstanceInfo) -> Iterator[tuple[str, int, str]]:
        for written in (instance.address, instance.api):
            try:
                host, port = host_port(written)
                wildcard = unwrapped(host).is_unspecified
            except ValueError:
                continue  # a name, or nothing: what that means here is not known
            # Every address of a machine that is not this one is not ours to know.
            if not wildcard or instance.host == self._instances.info.host:
                yield host, port, instance.id


class InstancesEndpoint:
    """Read from Redis; while it is away, the last list that was read, which is stale."""

    def __init__(self, parts: ApiParts) -> None:
        self._instances = parts.instances

    def endpoints(self) -> list[Endpoint]:
        return [Endpoint("GET", "/instances", self.show, InstancesShown, rights=("read",))]

    async def show(self, _: web.Request) -> web.Response:
        """Every living instance."""
        try:
            instances, stale = await self._instances.list(), False
        except RedisUnavailable:
            instances, stale = self._instances.known, True
        return json_reply(InstancesShown(instances=[_shown(each) for each in instances], stale=stale))


def _shown(instance: InstanceInfo) -> InstanceShown:
    return InstanceShown(
        id=instance.id,
        name=instance.name,
        address=instance.address,
        api=instance.api,
        version=instance.version,
        roles=instance.role_names,
        started=instance.started_at,
        pid=instance.process_id,
        host=instance.host,
    )
