"""What all processes have shown, as one viewer knows it: their last frames, and the rows of each."""

from collections.abc import Container, Iterator, Mapping, Set
from dataclasses import dataclass, field
from typing import Any

from slb.fleet.frame import MOST_MODELS, Frame, RouteRow, UpstreamRow

MOST_PROCESSES = 256
"""Whose frames are kept."""
MOST_STRANGERS = 32
"""Of these, such as do not beat: those that have just begun, or are none."""
GONE = 60.0
"""Seconds of silence after which a process is shown no more, unless it still beats."""
SILENT = 10.0
"""Seconds of silence after which the rows of a process count no more, at least: in a large fleet, where each shows
itself seldom, it is longer."""
CLOCK_OFF = 2.0
"""Seconds by which a clock is said to be off: what is less may be the way of a frame."""
_LEAST = 0.4
"""Seconds between two frames of one process: what comes sooner is not read."""


def _no_more() -> dict[str, dict[str, Any]]:
    return {"jobs": {}, "quota": {}, "rings": {}}


@dataclass
class Process:
    """`frame`: the last one, which came at `at`; `clock_off`: by how many seconds its clock was ahead of ours then,
    the way included; `since`: of upstreams that are out, since when, by our clock; `first_bytes`: of upstreams;
    `busy`: those that it has set aside; `spared`: those that it would eject, were `max_ejected` not reached;
    `stuck`: those that owe it an answer for too long; `empty_since`, `faults_since`: of routes without a member,
    and with settings that are not used, by our clock; `failing`: routes and upstreams of which requests fail there;
    `more`: what it tells of jobs, the quota router and rings."""

    frame: Frame
    at: float
    clock_off: float = 0.0
    upstreams: dict[str, UpstreamRow] = field(default_factory=dict)
    routes: dict[str, RouteRow] = field(default_factory=dict)
    since: dict[str, float] = field(default_factory=dict)
    first_bytes: dict[str, float] = field(default_factory=dict)
    busy: set[str] = field(default_factory=set)
    spared: set[str] = field(default_factory=set)
    stuck: set[str] = field(default_factory=set)
    empty_since: Mapping[str, float] = field(default_factory=dict)
    faults_since: Mapping[str, float] = field(default_factory=dict)
    failing: Set[str] = frozenset()
    more: dict[str, dict[str, Any]] = field(default_factory=_no_more)

    def by_our_clock(self, at: float) -> float:
        """`at`: by the clock of that process."""
        return round(at - (self.clock_off if abs(self.clock_off) >= CLOCK_OFF else 0.0), 3)


class Collected:
    """`take` each frame. `upstreams`, `routes`: by name and process what it shows of it; `touched_...`: the names
    of which that has changed. Names that are not in `known` are dropped, so that what is kept is bounded by the
    mirror of this process and `MOST_PROCESSES`."""

    def __init__(self) -> None:
        self.processes: dict[str, Process] = {}
        self.upstreams: dict[str, dict[str, UpstreamRow]] = {}
        self.routes: dict[str, dict[str, RouteRow]] = {}
        self.touched_upstreams: set[str] = set()
        self.touched_routes: set[str] = set()
        self.has_missed = False
        self.silent_after = SILENT

    def take(
        self,
        frame: Frame,
        now: float,
        upstreams: Container[str],
        routes: Container[str],
        alive: Container[str],
        wall: float = 0.0,
    ) -> None:
        """`has_missed` becomes True where frames before it were missed. `alive`: the ids of those that beat, which
        go before any that do not; `wall`: now, in seconds since 1970."""
        process = self.processes.get(frame.id)
        if process is None:
            if not self._has_room(frame.id, alive):
                return
            process = self.processes[frame.id] = Process(frame, now)
            self.has_missed |= not frame.full
        elif now - process.at < _LEAST and not frame.full:
            self.has_missed = True
            return
        elif frame.number != process.frame.number + 1 and not frame.full:
            self.has_missed = True
        if frame.full:
            self._clear(frame.id, process)
        process.frame, process.at = frame, now
        process.failing = {each for each in frame.failing if each in upstreams or each in routes}
        process.clock_off = (frame.instance.get("now") or wall) - wall
        self._take_upstreams(frame, process, upstreams)
        self._take_routes(frame, process, routes)
        for section, told in process.more.items():
            for name, shown in getattr(frame, section).items():
                if section == "rings":
                    shown = _known_shares(shown, upstreams) if name in routes else {}
                if not shown:
                    told.pop(name, None)
                elif name in told or len(told) < MOST_MODELS:
                    told[name] = shown

    def _take_upstreams(self, frame: Frame, process: Process, known: Container[str]) -> None:
        for member, row in frame.upstreams.items():
            if member in known:
                process.upstreams[member] = row
                self.upstreams.setdefault(member, {})[frame.id] = row
                self.touched_upstreams.add(member)
                process.since.pop(member, None)
                if member in frame.since:
                    process.since[member] = process.by_our_clock(frame.since[member])
                if member in frame.first_bytes:
                    process.first_bytes[member] = frame.first_bytes[member]
        busy = {member for member in frame.busy if member in known}
        self.touched_upstreams |= busy ^ process.busy
        process.busy = busy
        spared = {member for member in frame.spared if member in known}
        self.touched_upstreams |= spared ^ process.spared
        process.spared = spared
        stuck = {member for member in frame.stuck if member in known}
        self.touched_upstreams |= stuck ^ process.stuck
        process.stuck = stuck

    def since(self, member: str) -> Mapping[str, float]:
        """By process since when it finds this upstream out."""
        rows = self.upstreams.get(member, ())
        return {id_: at for id_ in rows if (at := self.processes[id_].since.get(member)) is not None}

    def first_bytes(self, member: str) -> Mapping[str, float]:
        """By process how long this upstream's first bytes take, in seconds."""
        rows = self.upstreams.get(member, ())
        return {id_: took for id_ in rows if (took := self.processes[id_].first_bytes.get(member)) is not None}

    def is_busy(self, member: str) -> bool:
        """Whether any process has set it aside."""
        return any(member in process.busy for process in self.processes.values())

    def spared_by(self, member: str) -> Set[str]:
        """The processes that would eject it, were `max_ejected` not reached."""
        return {id_ for id_, process in self.processes.items() if member in process.spared}

    def stuck_for(self, member: str) -> Set[str]:
        """The processes that find it stuck."""
        return {id_ for id_, process in self.processes.items() if member in process.stuck}

    def empty_since(self, path: str) -> float | None:
        """Since when this route has no member, where any process has seen it lose the last."""
        return min((at for each in self.processes.values() if (at := each.empty_since.get(path))), default=None)

    def faults_since(self, path: str) -> float | None:
        """Since when settings of this route are not used, where any process has seen that begin."""
        return min((at for each in self.processes.values() if (at := each.faults_since.get(path))), default=None)

    def _take_routes(self, frame: Frame, process: Process, known: Container[str]) -> None:
        for path, row in frame.routes.items():
            if path in known:
                process.routes[path] = row
                self.routes.setdefault(path, {})[frame.id] = row
                self.touched_routes.add(path)
        process.empty_since = _known(frame.empty_since, process, known)
        process.faults_since = _known(frame.faults_since, process, known)

    def leave_out(self, now: float, alive: Container[str]) -> None:
        """The rows of those that have been silent count no more; those that are gone are forgotten."""
        for id_, process in list(self.processes.items()):
            if now - process.at >= self.silent_after:
                self._clear(id_, process)
            if now - process.at >= max(GONE, 2 * self.silent_after) and id_ not in alive:
                del self.processes[id_]

    def forget(self, upstreams: Container[str], routes: Container[str]) -> None:
        """Keep the rows of these alone."""
        for member in [each for each in self.upstreams if each not in upstreams]:
            for id_ in self.upstreams.pop(member):
                self.processes[id_].upstreams.pop(member, None)
                self.processes[id_].since.pop(member, None)
                self.processes[id_].first_bytes.pop(member, None)
        for process in self.processes.values():
            process.busy = {member for member in process.busy if member in upstreams}
            process.spared = {member for member in process.spared if member in upstreams}
            process.stuck = {member for member in process.stuck if member in upstreams}
        for path in [each for each in self.routes if each not in routes]:
            for id_ in self.routes.pop(path):
                self.processes[id_].routes.pop(path, None)

    def living(self, now: float) -> Iterator[tuple[str, Process]]:
        """Those that are not silent, by id."""
        for id_, process in self.processes.items():
            if now - process.at < self.silent_after:
                yield id_, process

    def names(self) -> Mapping[str, str]:
        return {id_: str(each.frame.instance.get("name", "")) for id_, each in self.processes.items()}

    def _has_room(self, id_: str, alive: Container[str]) -> bool:
        if id_ in alive:
            return len(self.processes) < MOST_PROCESSES or self._make_room(alive)
        strangers = sum(each not in alive for each in self.processes)
        return strangers < MOST_STRANGERS and len(self.processes) < MOST_PROCESSES

    def _make_room(self, alive: Container[str]) -> bool:
        for id_, process in self.processes.items():
            if id_ not in alive:
                self._clear(id_, process)
                del self.processes[id_]
                return True
        return False

    def _clear(self, id_: str, process: Process) -> None:
        for member in process.upstreams:
            rows = self.upstreams[member]
            del rows[id_]
            self.touched_upstreams.add(member)
            if not rows:
                del self.upstreams[member]
        for path in process.routes:
            of_route = self.routes[path]
            del of_route[id_]
            self.touched_routes.add(path)
            if not of_route:
                del self.routes[path]
        process.upstreams.clear()
        process.routes.clear()
        process.since.clear()
        process.first_bytes.clear()
        self.touched_upstreams |= process.busy | process.spared | process.stuck
        process.busy, process.spared, process.stuck = set(), set(), set()
        process.empty_since, process.faults_since = {}, {}
        process.more = _no_more()


def _known(since: Mapping[str, float], process: Process, routes: Container[str]) -> Mapping[str, float]:
    return {path: process.by_our_clock(at) for path, at in since.items() if path in routes}


def _known_shares(ring: Mapping[str, Any], upstreams: Container[str]) -> Mapping[str, Any]:
    return {name: [each for each in shares if each[0] in upstreams] for name, shares in ring.items()}
