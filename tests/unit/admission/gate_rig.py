"""Gates whose lanes are played by the test: no Redis, and nothing is decided but by the test."""

import asyncio
from collections import Counter
from collections.abc import Callable, Container, Mapping, Sequence
from random import Random
from types import SimpleNamespace
from typing import Any, cast

from slb.admission.entry import Entry
from slb.admission.gate import Gate
from slb.admission.gates import Gates, turn_of
from slb.balance.asking import Ask, Candidate
from slb.balance.upstream import Handle, LiveUpstream
from slb.control.lane import Lane
from slb.control.lane_state import LaneState
from slb.control.lane_timing import LaneTiming
from slb.control.ledger import Ledger
from slb.errors import Reason
from slb.observe.metrics import Metrics
from tests.unit.routing.mirror_rig import A, B, make_mirror, record, replace

PATH = "/p"
CAPPED = {"max_inflight": "1", "policy": "least_inflight"}
QUEUED = {**CAPPED, "when_full": "queue"}
NEVER = 600.0


class PlayedLane:
    """What a gate calls of its lane is noted; `asked` are the asks that were brought and not answered yet. `turns`:
    change how it stands with Redis, and announce it."""

    def __init__(self, on_change: Callable[[Sequence[Ask]], None]) -> None:
        self.settling = False
        self.taking = True
        self.in_flight = False
        self.state = LaneState()
        self.state.error = ""
        self.held: Counter[str] = Counter()
        self.epochs = SimpleNamespace(holders=1, unreported=0)
        self.explained = SimpleNamespace(seen={})
        self.timing = LaneTiming(settle=NEVER, silence=NEVER)
        self.idle = True
        self.asked: list[Ask] = []
        self.left: list[Ask] = []
        self.released: list[str] = []
        self.views: dict[str, tuple[Candidate, ...]] = {}
        self.dismissed: dict[str, tuple[Candidate, ...]] = {}
        self.kept: list[Container[str]] = []
        self.says_all = 0
        self._on_change = on_change

    def turns(self, undecided: Sequence[Ask] = (), **state: Any) -> None:
        for name, value in state.items():
            setattr(self if hasattr(self, name) else self.state, name, value)
        self._on_change(undecided)

    def takes(self, ask: Ask) -> bool:
        return self.state.ready and self.taking

    def ask(self, ask: Ask) -> None:
        self.asked.append(ask)

    def leave(self, ask: Ask) -> None:
        self.left.append(ask)

    def release(self, member: str) -> None:
        self.held[member] -= 1
        self.released.append(member)

    def view(self, name: str, candidates: tuple[Candidate, ...]) -> None:
        self.views[name] = candidates

    def dismiss(self, name: str, candidates: tuple[Candidate, ...]) -> None:
        self.dismissed[name] = candidates

    def unanswered(self) -> set[str]:
        return {ask.view for ask in self.asked}

    def keep_views(self, names: Container[str]) -> None:
        self.kept.append(names)

    def send_all(self) -> None:
        self.says_all += 1

    @property
    def is_idle(self) -> bool:
        return self.idle and not +self.held

    def grant(self, member: str) -> None:
        """Redis gives the first that asked a slot of `member`."""
        self.state.told = asyncio.get_running_loop().time()
        self.held[member] += 1
        self.asked.pop(0).granted(member)


class Visit:
    """One request at a gate, and its answer: the member it was admitted to, or the reason it was refused for."""

    def __init__(self) -> None:
        self.answers: list[str] = []
        self.detail = ""
        self.entry: Entry
        self.handle: Handle

    def admitted(self, handle: Handle) -> None:
        self.handle = handle
        self.answers.append(handle.upstream.member)

    def rejected(self, reason: Reason, detail: str) -> None:
        self.detail = detail
        self.answers.append(reason.name)


class Setup:
    """The gate of the route `/p` with these members and settings, and its lane. `instances`: how many share it."""

    def __init__(self, *members: str, **settings: str) -> None:
        self.instances = 1
        self.mirror = make_mirror()
        self.metrics = Metrics()
        self.route(*members, **settings)
        self.gate = Gate(PATH, self._make, self.mirror, self.metrics, lambda: self.instances, Random(1))

    def _make(self, pool: str, on_change: Callable[[Sequence[Ask]], None]) -> Lane:
        self.lane = PlayedLane(on_change)
        return cast("Lane", self.lane)

    def route(self, *members: str, **settings: str) -> None:
        """What the route is from now on."""
        replace(self.mirror, {PATH: record(*members, **settings)})

    def live(self, *members: str) -> tuple[LiveUpstream, ...]:
        return tuple(each for each in self.mirror.table.routes[PATH].members if each.member in members)

    def visit(
        self,
        avoided: Sequence[str] = (),
        deprioritized: Sequence[str] = (),
        priority: str = "",
        earlier: Visit | None = None,
    ) -> Visit:
        """A request that comes now."""
        route, visit = self.mirror.table.routes[PATH], Visit()
        turn = turn_of(route.settings, priority)
        before = earlier.entry if earlier is not None else None
        some = self.live(*avoided), self.live(*deprioritized)
        visit.entry = self.gate.enter(route, *some, turn, visit, earlier=before)
        return visit


class PlayedLedger:
    """Its lanes are played by the test. `scores`: pool -> what was read of it."""

    def __init__(self) -> None:
        self.lanes: dict[str, PlayedLane] = {}
        self.scores: dict[str, Mapping[str, int]] = {}

    def lane(self, pool: str, on_change: Callable[[Sequence[Ask]], None]) -> Lane:
        self.lanes[pool] = PlayedLane(on_change)
        return cast("Lane", self.lanes[pool])

    def drop(self, pool: str) -> None:
        del self.lanes[pool]


class Pools:
    """The gates of an instance that has no routes yet."""

    def __init__(self) -> None:
        self.mirror = make_mirror()
        self.metrics = Metrics()
        self.ledger = PlayedLedger()
        self.gates = Gates(cast("Ledger", self.ledger), self.mirror, self.metrics, lambda: 1, Random(1))

    def routes(self, **settings: Mapping[str, str]) -> None:
        """These are all there are: a name for each, and its settings. All have the members A and B."""
        replace(self.mirror, {f"/{name}": record(A, B, **each) for name, each in settings.items()})

    def visit(self, path: str, avoided: Sequence[str] = (), deprioritized: Sequence[str] = ()) -> Visit:
        """A request that comes now."""
        route, visit = self.mirror.table.routes[path], Visit()
        some = [tuple(map(self.mirror.upstreams.__getitem__, members)) for members in (avoided, deprioritized)]
        visit.entry = self.gates.of(route).enter(route, some[0], some[1], turn_of(route.settings, ""), visit)
        return visit
