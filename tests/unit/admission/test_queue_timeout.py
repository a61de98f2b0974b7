"""`queue_timeout` bounds how long a request waits, whatever becomes of Redis and of its route meanwhile; in virtual
time, so to the moment."""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, cast

import pytest

from slb.admission.entry import Entry
from slb.admission.gate import Gate
from slb.admission.gates import turn_of
from slb.balance.asking import Ask
from slb.balance.upstream import Handle
from slb.control.epoch_tracker import EpochTracker
from slb.control.explained import Explained
from slb.control.lane_state import LaneState
from slb.control.lane_timing import LaneTiming
from slb.errors import Reason
from slb.observe.metrics import Metrics
from tests.support.virtual_time import in_virtual_time
from tests.unit.routing.mirror_rig import A, B, make_mirror, record, replace

TIMEOUT = 5.0
SETTINGS = {"max_inflight": "1", "policy": "least_inflight", "when_full": "queue", "queue_timeout": f"{TIMEOUT}s"}
STEPS = 60


class LaneOfNoSlots:
    """In a lane's place: it takes what a lane takes, and every slot is held by others until it grants one."""

    def __init__(self, on_change: Callable[[Sequence[Ask]], None]) -> None:
        self.settling = False
        self.state = LaneState()
        self.held = Counter({A: 1, B: 1})
        self.epochs, self.explained, self.timing = EpochTracker(), Explained(), LaneTiming()
        self.waiting: list[Ask] = []
        self._on_change = on_change

    def takes(self, ask: Ask) -> bool:
        return self.state.ready and (ask.patient or not (self.state.late or self.settling))

    def ask(self, ask: Ask) -> None:
        self.waiting.append(ask)

    def leave(self, ask: Ask) -> None:
        self.waiting.remove(ask)

    def view(self, *_: object) -> None:
        """Candidates change nothing: none has room."""

    dismiss = view

    def send_all(self) -> None:
        """It counts nothing."""

    def unanswered(self) -> set[str]:
        return {ask.view for ask in self.waiting}

    def release(self, member: str) -> None:
        """Others take it at once."""

    def stands(self, rng: Random) -> None:
        """Redis is there or not, late or not, settling or not, from now on."""
        self.state.ready, self.state.late, self.settling = (rng.random() < 0.5 for _ in range(3))
        undecided = [] if self.state.ready else self.waiting
        self.waiting = [] if undecided else self.waiting
        self._on_change(undecided)

    def announce(self, rng: Random) -> None:
        """Some of those that wait get their place in the queue."""
        for ask in rng.sample(self.waiting, len(self.waiting) // 2):
            ask.queued(rng.randrange(9), rng.randrange(1, 99))

    def grant(self, rng: Random) -> None:
        """One of those that wait gets a slot."""
        if self.waiting:
            self.waiting.pop(rng.randrange(len(self.waiting))).granted(A)


class Visit:
    """A request that fails at each upstream after 1 s, and comes again. `ended`: when it was refused, and why;
    `served`: for how long it was at upstreams."""

    def __init__(self, gate: Gate, route: Any) -> None:
        self._loop = asyncio.get_running_loop()
        self._gate, self._route = gate, route
        self.came, self.served = self._loop.time(), 0.0
        self.ended: asyncio.Future[tuple[float, str]] = self._loop.create_future()
        self._entry: Entry | None = None
        self._enter()

    def _enter(self) -> None:
        turn = turn_of(self._route.settings, "")
        self._entry = self._gate.enter(self._route, (), (), turn, self, earlier=self._entry)

    def admitted(self, handle: Handle) -> None:
        def failed() -> None:
            self.served += 1.0
            handle.release(completed=False)
            self._enter()

        self._loop.call_later(1.0, failed)

    def rejected(self, reason: Reason, detail: str) -> None:
        self.ended.set_result((self._loop.time(), reason.name))


@pytest.mark.parametrize("seed", range(20))
def test_no_request_waits_for_longer_than_its_queue_timeout_whatever_happens(seed: int) -> None:
    rng = Random(seed)

    async def live() -> None:
        lanes: list[LaneOfNoSlots] = []

        def make_lane(_: str, on_change: Callable[[Sequence[Ask]], None]) -> Any:
            lanes.append(LaneOfNoSlots(on_change))
            return lanes[0]

        mirror = make_mirror()
        replace(mirror, {"/p": record(A, B, **SETTINGS)})
        gate = Gate("/p", make_lane, mirror, Metrics(), lambda: 1, Random(seed))
        (lane,) = lanes
        visits: list[Visit] = []
        for _ in range(STEPS):
            await asyncio.sleep(rng.random())
            match rng.randrange(6):
                case 0 | 1:
                    visits.append(Visit(gate, mirror.table.routes["/p"]))
                case 2:
                    lane.stands(rng)
                case 3:
                    lane.announce(rng)
                case 4:
                    lane.grant(rng)
                case _:
                    replace(mirror, {"/p": record(*rng.choice([(A,), (A, B)]), **SETTINGS)})
                    gate.refresh()
        for visit in visits:
            at, reason = await visit.ended
            assert reason == "queue_timeout"
            assert at - visit.came - visit.served == pytest.approx(TIMEOUT)
        assert cast("Any", lane.waiting) == []
        assert gate.waiting == Counter()

    in_virtual_time(live)
