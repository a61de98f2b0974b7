"""The upstreams that routes name: one object for each member, from the first table that names it to the last, so
that what is counted of an upstream survives every swap."""

from collections.abc import Collection, Generator, Mapping, Set

from slb.balance.eligible import takes_requests
from slb.balance.upstream import LiveUpstream
from slb.model import Upstream

Attributes = Mapping[str, Mapping[str, str]]
"""member -> its hash in Redis; members without one are absent."""

SLICE = 50
"""Members made into upstreams between two yields: well under 5 ms of work."""

CHEAP_SLICE = 1000
"""Members only looked up, or sorted, between two yields."""


_NONE: Mapping[str, str] = {}


class UpstreamsDraft:
    """The upstreams as they will be after the next swap. `attributes`: of all members then; `changed`: members
    whose attributes change; `now`: `seen` of new ones."""

    def __init__(
        self, live: Mapping[str, LiveUpstream], attributes: Attributes, changed: Set[str], now: float
    ) -> None:
        self._live = live
        self._attributes = attributes
        self._now = now
        self.changed = changed
        self.fresh: dict[str, LiveUpstream] = {}

    def of(self, member: str) -> LiveUpstream:
        live = self._live.get(member) or self.fresh.get(member)
        if live is None:
            spec = Upstream.of(member, self._attributes.get(member))
            live = self.fresh[member] = LiveUpstream(spec, self._now)
        return live

    def takes_requests(self, live: LiveUpstream) -> bool:
        """As it will be after the swap."""
        if live.member in self.changed and live.member not in self.fresh:
            return takes_requests(live.member, self._attributes)
        return not live.spec.drain

    def specs(self) -> Generator[None, None, dict[str, Upstream]]:
        """The new specs of members whose attributes have changed. Yields between slices."""
        specs: dict[str, Upstream] = {}
        for count, member in enumerate(self.changed & self._live.keys(), 1):
            specs[member] = Upstream.of(member, self._attributes.get(member))
            if count % SLICE == 0:
                yield
        return specs


class LiveUpstreams:
    """`live`: member -> its upstream, of every member that some route names. `attributes`: as Redis has them."""

    def __init__(self) -> None:
        self.live: dict[str, LiveUpstream] = {}
        self.attributes: dict[str, Mapping[str, str]] = {}

    def changed(self, attributes: Attributes) -> Generator[None, None, set[str]]:
        """Those of `attributes` that are not what they were; {} for a member that has none. Yields between
        slices."""
        changed: set[str] = set()
        for count, (member, each) in enumerate(attributes.items(), 1):
            before = self.attributes.get(member, _NONE)
            if before is not each and before != each:
                changed.add(member)
            if count % CHEAP_SLICE == 0:
                yield
        return changed

    def store(self, changed: Collection[str], attributes: Attributes) -> None:
        if not self.attributes:
            self.attributes = {member: attributes[member] for member in changed}
            return
        for member in changed:
            if attributes[member]:
                self.attributes[member] = attributes[member]
            else:
                del self.attributes[member]

    def adopt(self, draft: UpstreamsDraft, specs: Mapping[str, Upstream]) -> None:
        """Apply the draft."""
        if self.live:
            self.live.update(draft.fresh)
        else:
            self.live = draft.fresh  # the first table: all of a hundred thousand at once
        for member, spec in specs.items():
            self.live[member].spec = spec

    def drop(self, gone: Collection[str]) -> None:
        for member in gone:
            self.live.pop(member, None)
