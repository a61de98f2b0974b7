"""What becomes of a request while Redis does not give what is held: its route's `when_unsure` decides, and the log
and a metric count each slot that was given out so."""

from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from slb.control.lane_timing import LaneTiming
from tests.redis.gate_rig import CAPPED, QUEUED, ROUTE, Fleet, Pods, Proxy
from tests.support.relay import Relay
from tests.support.valkey import Valkey
from tests.support.waiting import eventually, patience

PATIENT = LaneTiming(budget=0.1, silence=30.0)
BRIEF = replace(PATIENT, silence=0.3)
WAIT = {**CAPPED, "when_unsure": "wait"}


async def lose_all_with(gone: Proxy, left: Proxy, valkey: Valkey) -> None:
    """Redis loses its data, and one instance, which the other counts, is not there to send what it holds."""
    left.gate.lane.send_all()
    await eventually(lambda: left.gate.lane.epochs.holders == 2, what="both known")
    await gone.stop()
    valkey.admin.flushall()


async def test_shed_with_local_may_overshoot_and_that_is_logged(valkey: Valkey) -> None:
    pods = Pods(1)
    async with Fleet(valkey, 2, pods, CAPPED, PATIENT) as fleet:
        one, other = fleet.proxies
        await one.visit().answer
        valkey.freeze()
        with capture_logs() as logs:
            visits = [other.visit(), other.visit()]
            assert await visits[0].answer == pods.members[0]
            assert await visits[1].answer == "pool_saturated"  # it sees what it holds itself
        assert pods.most == 2
        assert (other.metrics.ledger.local_grants, other.metrics.ledger.local_decisions) == (1, 2)
        assert [line for line in logs if line["event"] == "ledger_unsure"] == [
            {"event": "ledger_unsure", "log_level": "warning", "pool": ROUTE, "mode": "late", "local_grants": 1}
        ]
        valkey.thaw()
        await eventually(lambda: other.gate.mode == "shared", what="shared again")


async def test_shed_with_local_is_decided_by_redis_over_a_connection_that_is_cut(valkey: Valkey) -> None:
    """As long as that takes no longer than the budget."""
    pods = Pods(1)
    async with Fleet(valkey, 2, pods, CAPPED, replace(PATIENT, budget=patience(5.0))) as fleet:
        one, other = fleet.proxies
        await one.visit().answer
        valkey.admin.client_kill_filter(_type="normal")
        assert [await each.answer for each in (other.visit(), one.visit())] == ["pool_saturated"] * 2
        assert (one.metrics.ledger.local_decisions, other.metrics.ledger.local_decisions) == (0, 0)


async def test_shed_with_refuse_is_refused_by_name_rather_than_overshoot(valkey: Valkey) -> None:
    pods = Pods(1)
    async with Fleet(valkey, 2, pods, {**CAPPED, "when_unsure": "refuse"}, PATIENT) as fleet:
        one, other = fleet.proxies
        held = one.visit()
        await held.answer
        valkey.freeze()
        assert await other.visit().answer == "slots_unknown"
        assert (pods.most, other.metrics.queue.shed) == (1, {"slots_unknown": 1})
        valkey.thaw()
        await eventually(lambda: other.gate.mode == "shared", what="shared again")
        assert await other.visit().answer == "pool_saturated"
        held.end()
        await eventually(lambda: not one.gate.lane.held and one.gate.is_idle, what="given back")
        assert await other.visit().answer == pods.members[0]


async def test_shed_with_wait_waits_for_the_truth(valkey: Valkey) -> None:
    pods = Pods(1)
    async with Fleet(valkey, 2, pods, WAIT, PATIENT) as fleet:
        one, other = fleet.proxies
        await one.visit().answer
        valkey.freeze()
        visit = other.visit()
        await eventually(lambda: other.gate.mode == "late", what="late")
        assert not visit.answer.done()
        valkey.thaw()
        assert await visit.answer == "pool_saturated"
        assert pods.most == 1


async def test_while_it_is_late_no_other_request_waits_for_the_budget(valkey: Valkey) -> None:
    pods = Pods(1)
    async with Fleet(valkey, 2, pods, {**CAPPED, "when_unsure": "refuse"}, PATIENT) as fleet:
        proxy = fleet.proxies[0]
        valkey.freeze()
        await proxy.visit().answer
        assert proxy.visit().answer.done()
        valkey.thaw()


async def test_without_a_cap_it_is_decided_here_whatever_is_to_be_refused(valkey: Valkey) -> None:
    pods = Pods(1)
    settings = {"policy": "least_inflight", "when_unsure": "refuse"}
    async with Fleet(valkey, 1, pods, settings, PATIENT) as fleet:
        proxy = fleet.proxies[0]
        valkey.freeze()
        assert await proxy.visit().answer == pods.members[0]
        assert (proxy.metrics.ledger.local_decisions, proxy.metrics.ledger.local_grants) == (1, 0)
        valkey.thaw()


@pytest.mark.parametrize(
    ("settings", "answer"),
    [
        ({**QUEUED, "when_unsure": "local"}, "10.0.0.1:80"),
        ({**QUEUED, "when_unsure": "wait"}, "10.0.0.1:80"),
        ({**QUEUED, "when_unsure": "refuse"}, "slots_unknown"),
        (WAIT, "10.0.0.1:80"),
        ({**CAPPED, "when_unsure": "refuse"}, "slots_unknown"),
    ],
)
async def test_when_redis_has_not_answered_for_the_patience_the_setting_of_the_route_holds(
    valkey: Valkey, settings: dict[str, str], answer: str
) -> None:
    pods = Pods(1)
    async with Fleet(valkey, 1, pods, settings, BRIEF) as fleet:
        proxy = fleet.proxies[0]
        valkey.freeze()
        with capture_logs() as logs:
            assert await proxy.visit().answer == answer
            await eventually(lambda: proxy.gate.mode == "local", what="local")
        assert [line["pool"] for line in logs if line["event"] == "ledger_local"] == [ROUTE]
        assert proxy.metrics.ledger.local_grants == (answer != "slots_unknown")
        valkey.thaw()


async def test_waiting_tickets_are_refused_too_where_nothing_is_to_be_guessed(valkey: Valkey) -> None:
    pods = Pods(1)
    async with Fleet(valkey, 1, pods, {**QUEUED, "when_unsure": "refuse"}, BRIEF) as fleet:
        proxy = fleet.proxies[0]
        await proxy.visit().answer
        waits = proxy.visit()
        await eventually(lambda: bool(proxy.gate.waiting), what="it waits")
        valkey.freeze()
        assert await waits.answer == "slots_unknown"
        assert not proxy.gate.waiting
        valkey.thaw()


async def test_a_request_waits_for_redis_no_longer_than_its_queue_timeout(valkey: Valkey) -> None:
    pods = Pods(1)
    async with Fleet(valkey, 1, pods, {**QUEUED, "queue_timeout": "200ms"}, PATIENT) as fleet:
        proxy = fleet.proxies[0]
        valkey.freeze()
        assert await proxy.visit().answer == "queue_timeout"
        valkey.thaw()
        await eventually(lambda: proxy.gate.is_idle, what="nothing is left")
        assert await proxy.visit().answer == pods.members[0]


async def test_with_wait_a_request_waits_until_other_holders_have_sent_what_they_hold(
    valkey: Valkey,
) -> None:
    """For longer than Redis may be silent: it is not."""
    pods = Pods(1)
    async with Fleet(valkey, 2, pods, WAIT, replace(BRIEF, settle=patience(1.0))) as fleet:
        one, other = fleet.proxies
        await lose_all_with(other, one, valkey)
        one.gate.lane.send_all()
        await eventually(lambda: one.gate.mode == "settling", what="settling")
        visits = [one.visit(), one.visit()]
        assert [await each.answer for each in visits] == [pods.members[0], "pool_saturated"]
        assert (one.metrics.ledger.local_decisions, one.gate.mode) == (0, "shared")


async def test_with_wait_one_is_refused_at_last_rather_than_decided_here_while_redis_answers(
    valkey: Valkey,
) -> None:
    pods = Pods(1)
    async with Fleet(valkey, 2, pods, WAIT, replace(BRIEF, settle=60.0)) as fleet:
        one, other = fleet.proxies
        await lose_all_with(other, one, valkey)
        one.gate.lane.send_all()
        await eventually(lambda: one.gate.mode == "settling", what="settling")
        one.gate.lane.timing = replace(BRIEF, settle=0.1)  # no longer may one that comes now wait
        assert await one.visit().answer == "slots_unknown"
        assert (one.metrics.ledger.local_decisions, one.gate.mode) == (0, "settling")


async def test_without_a_cap_wait_is_decided_here_at_last(valkey: Valkey) -> None:
    pods = Pods(1)
    settings = {"policy": "least_inflight", "when_unsure": "wait"}
    async with Fleet(valkey, 1, pods, settings, replace(PATIENT, settle=0.0)) as fleet:
        proxy = fleet.proxies[0]
        valkey.freeze()
        proxy.gate.lane.send_all()
        await eventually(lambda: proxy.gate.mode == "late", what="late")
        proxy.gate.lane.timing = replace(PATIENT, settle=0.0, silence=0.1)
        assert await proxy.visit().answer == pods.members[0]
        assert (proxy.metrics.ledger.local_decisions, proxy.metrics.ledger.local_grants) == (1, 0)
        valkey.thaw()


async def test_with_wait_one_waits_for_the_batch_in_flight_and_for_its_own(valkey: Valkey) -> None:
    """Each may take nearly as long as Redis may be silent."""
    pods, round_trip = Pods(1), patience(0.25)
    timing = LaneTiming(silence=1.6 * round_trip)
    async with (
        Relay(valkey.process.socket, round_trip / 2) as relay,
        Fleet(valkey, 1, pods, WAIT, timing, url=relay.url) as fleet,
    ):
        proxy = fleet.proxies[0]
        proxy.gate.lane.send_all()
        await eventually(lambda: proxy.gate.mode == "late", what="a batch in flight")
        assert await proxy.visit().answer == pods.members[0]
        assert proxy.metrics.ledger.local_decisions == 0


async def test_all_slots_that_were_given_out_without_redis_are_logged(valkey: Valkey) -> None:
    """The first at once, those of the next second together, whether another comes after that or not."""
    pods = Pods(12)
    async with Fleet(valkey, 1, pods, CAPPED, PATIENT) as fleet:
        proxy = fleet.proxies[0]
        valkey.freeze()
        with capture_logs() as logs:
            visits = [proxy.visit() for _ in pods.members]
            assert {await each.answer for each in visits} == set(pods.members)
            valkey.thaw()
            await eventually(lambda: len(logs) >= 2, what="the rest")
        logged = [(line["event"], line["mode"], line["local_grants"]) for line in logs]
        assert logged == [("ledger_unsure", "late", 1), ("ledger_unsure", "late", 11)]
        assert proxy.metrics.ledger.local_grants == 12


async def test_settling_that_ends_without_a_holder_is_logged(valkey: Valkey) -> None:
    pods = Pods(1)
    async with Fleet(valkey, 2, pods, QUEUED, replace(PATIENT, settle=0.3)) as fleet:
        one, other = fleet.proxies
        await lose_all_with(other, one, valkey)
        with capture_logs() as logs:
            one.gate.lane.send_all()
            assert await one.visit().answer == pods.members[0]
        logged = {line["event"]: line.get("holders") for line in logs}
        assert logged == {"ledger_lost": None, "ledger_settling": 2, "ledger_shared": None, "ledger_unheard": 1}


async def test_the_lane_of_a_counted_route_has_its_script_before_the_first_request(valkey: Valkey) -> None:
    async with Fleet(valkey, 1, Pods(1), QUEUED) as fleet:
        proxy = fleet.proxies[0]
        assert proxy.gates.known(ROUTE) is proxy.gate
        assert proxy.gate.lane.state.answered.is_set()
        await proxy.gates.opened(60)
