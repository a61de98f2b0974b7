"""How long requests wait at a gate, and how many do."""

from slb.admission.entry import Entry
from slb.admission.waits import Waits
from slb.control.lane_timing import LaneTiming
from slb.observe.metrics import Metrics
from tests.support.waiting import eventually
from tests.unit.admission.gate_rig import CAPPED, NEVER, PATH, QUEUED, Setup

LONG = LaneTiming(settle=NEVER, silence=NEVER)
BRIEF = LaneTiming(settle=0.0, silence=0.01)


class Ends:
    """Waits whose ends are noted."""

    def __init__(self) -> None:
        self.timed_out: list[Entry] = []
        self.impatient: list[Entry] = []
        self.metrics = Metrics()
        self.waits = Waits(self.metrics, self.timed_out.append, self.impatient.append)


def fresh(**settings: str) -> Entry:
    """A request that has come to a gate and is not answered yet; the gate keeps its time no more."""
    entry = Setup("10.0.0.1:80", **settings).visit().entry
    if entry.wait.timer is not None:
        entry.wait.timer.cancel()
        entry.wait.timer = None
    return entry


async def test_a_request_queues_once_until_its_wait_ends() -> None:
    ends, entry = Ends(), fresh(**QUEUED)
    for position in (3, 1):
        ends.waits.queue(entry, position, LONG)
    assert (dict(ends.waits.queued), entry.wait.position) == ({(PATH, ""): 1}, 3)
    assert dict(ends.metrics.queue.positions[PATH]) == {"count": 1, "sum": 3}
    before = entry.wait.left
    queued = ends.waits.end(entry)
    assert queued is not None
    assert (entry.wait.waited, entry.wait.left) == (queued, before - queued)
    assert (dict(ends.waits.queued), entry.waiter, entry.wait.timer) == ({}, None, None)
    ends.waits.queue(entry, 1, LONG)
    assert not ends.waits.queued, "it has its answer"


async def test_a_request_that_may_not_queue_does_not() -> None:
    ends, entry = Ends(), fresh(**CAPPED)
    ends.waits.queue(entry, 1, LONG)
    assert not ends.waits.queued
    assert ends.waits.end(entry) is None


async def test_a_request_may_queue_for_as_long_as_its_route_allows() -> None:
    ends, entry = Ends(), fresh(**QUEUED, queue_timeout="10ms")
    ends.waits.queue(entry, 0, LONG)
    await eventually(lambda: ends.timed_out == [entry])
    assert not ends.impatient


async def test_a_request_that_may_not_queue_waits_only_while_redis_is_not_silent() -> None:
    ends, entry = Ends(), fresh(**CAPPED)
    ends.waits.bound(entry, BRIEF)
    await eventually(lambda: ends.impatient == [entry])
    assert not ends.timed_out
