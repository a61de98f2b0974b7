"""An upstream with what is counted of it here; it outlives every table that names it."""

import math
from dataclasses import dataclass, field

from slb.balance.load_stats import LoadStats
from slb.model import HealthCheck, Upstream

ALWAYS = -math.inf
"""When an upstream was first seen that was here before this process."""


@dataclass(slots=True, eq=False, repr=False)
class LiveUpstream:
    """`inflight` is the number of live handles of this process; `spec` is replaced when attributes change.

    `failures` counts failed requests in a row. `available` is False while it is ejected for them, and `down` has
    the active checks that found it down; `set_aside` is True while it is said to be busy. Routes follow these when
    they are refreshed. `on_probation` is True from the end of an ejection until it is trusted again: until it is
    `proven` by an answer it has one request at a time, and none while another instance has its turn
    (`probed_elsewhere`; `wanted`: requests have come meanwhile that might go there); then its share grows from
    `back_at` to `trusted_at`, of the clock of `seen`. `answered_at`: when it last has, a request of this process;
    `alive_at`: when the last byte of an answer came, as far as such are seen; `unseen`: answers under way of which
    this process sees no byte. `passing` (the active checks that found it up), `passed_at` (until when one did) and
    `why` it was last taken out are only shown; times are of the monotonic clock, 0.0 for never. `since`: from when
    on it has been out, ejections in succession being one, in seconds since 1970; or was, last. `spared`: why it
    would be ejected, were `max_ejected` not reached, or is stuck; empty once it answers; `spared_since`: from when
    on, as `since`. `stuck`: it owes an answer for too long; where it is ejected for that, until it gives a byte.
    `seen` is when it joined as far as this process can tell, in seconds of the mirror's clock. `load_stats`: how
    busy it is, None where no policy uses it. `troubles`: the routes in which the judge has something against it."""

    spec: Upstream
    seen: float = ALWAYS
    member: str = field(init=False)
    inflight: int = 0
    available: bool = True
    failures: int = 0
    set_aside: bool = False
    on_probation: bool = False
    proven: bool = False
    probed_elsewhere: bool = False
    wanted: bool = False
    back_at: float = 0.0
    trusted_at: float = 0.0
    answered_at: float = 0.0
    alive_at: float = 0.0
    unseen: int = 0
    down: frozenset[HealthCheck] = frozenset()
    passing: frozenset[HealthCheck] = frozenset()
    passed_at: float = 0.0
    why: str = ""
    since: float = 0.0
    spared: str = ""
    spared_since: float = 0.0
    stuck: bool = False
    load_stats: LoadStats | None = None
    troubles: int = 0

    def __post_init__(self) -> None:
        self.member = self.spec.member

    @property
    def is_suspect(self) -> bool:
        """Whether its next answer says something new."""
        return bool(self.troubles or self.failures or self.on_probation or self.set_aside)

    @property
    def is_probed(self) -> bool:
        """Whether it is on probation, and owes the answer that is to prove it, here or to another instance."""
        return self.on_probation and not self.proven and (self.inflight > 0 or self.probed_elsewhere)

    @property
    def is_known_stuck(self) -> bool:
        """Whether it is stuck, and no request is under way that is to tell whether it still is."""
        return self.stuck and bool(self.spared or not self.available)

    def last_alive(self, now: float) -> float:
        """When it gave the last sign of life; `now`, where that may be."""
        return now if self.unseen else self.alive_at

    def __repr__(self) -> str:
        return f"<LiveUpstream {self.member} inflight={self.inflight}>"


class Handle:
    """One request's hold on an upstream, from the pick to its end."""

    __slots__ = ("_held", "_token", "upstream")

    def __init__(self, upstream: LiveUpstream) -> None:
        self.upstream = upstream
        self._held = True
        self._token = 0 if upstream.load_stats is None else upstream.load_stats.begin()
        upstream.inflight += 1

    def lasts(self) -> None:
        """It was answered, and may stay open without a limit: its duration is no latency."""
        if (load_stats := self._load_stats()) is not None:
            load_stats.lasts(self._token)

    def waits(self) -> None:
        """The client is still sending the body."""
        if (load_stats := self._load_stats()) is not None:
            load_stats.waits(self._token)

    def goes_on(self) -> None:
        """The upstream has all of the request, or takes no more of it."""
        if (load_stats := self._load_stats()) is not None:
            load_stats.goes_on(self._token)

    def _load_stats(self) -> LoadStats | None:
        return self.upstream.load_stats if self._held and self._token else None

    def goes_over(self) -> None:
        """The request has completed, and the next one has its hold from now on."""
        if (load_stats := self._load_stats()) is not None:
            load_stats.end(self._token, True)
            self._token = load_stats.begin()

    def release(self, completed: bool = True) -> None:
        """Give the slot back, once. `completed`: the time it took is a measure of the upstream's latency."""
        if self._held:
            self._held = False
            self.upstream.inflight -= 1
            if self._token and self.upstream.load_stats is not None:
                self.upstream.load_stats.end(self._token, completed)

    def moved(self, upstream: LiveUpstream) -> "Handle":
        """A handle on `upstream`, where another party has sent the request; this one is yet to be released."""
        return Handle(upstream)
