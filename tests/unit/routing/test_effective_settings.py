"""Which of the settings written for a route hold."""

from typing import Any

from slb.model import RouteRecord
from slb.routing.effective_settings import EffectiveSettings, Judged
from tests.unit.routing.mirror_rig import record


class Written:
    """A route whose hash is written anew, again and again."""

    def __init__(self) -> None:
        self.now = 100.0
        self.effective_settings = EffectiveSettings(lambda: self.now)
        self.record: RouteRecord | None = None

    def write(self, **settings: str) -> dict[str, Any]:
        """What holds then."""
        judged: Judged = {}
        before, self.record = self.record, record(**settings)
        holds = self.effective_settings.judge("/p", self.record, before, judged)
        self.effective_settings.adopt(judged)
        assert self.effective_settings.fields("/p", self.record)[0] == holds
        return holds

    @property
    def at_fault(self) -> list[str]:
        return [fault.split(" ")[0] for fault in self.effective_settings.faults.get("/p", [])]


def test_what_is_judged_does_not_hold_before_it_is_adopted() -> None:
    written = Written()
    written.write(retries="2")
    judged: Judged = {}
    bad = record(retries="x")
    assert written.effective_settings.judge("/p", bad, written.record, judged) == {"retries": "2"}
    assert written.effective_settings.faults == {}
    assert written.effective_settings.fields("/p", bad)[0] == {}
    written.effective_settings.adopt(judged)
    assert written.at_fault == ["retries"]
    assert written.effective_settings.fields("/p", bad)[0] == {"retries": "2"}


def test_one_at_fault_holds_on_while_others_change_and_goes_when_it_is_taken_away() -> None:
    written = Written()
    assert written.write(retries="2", policy="p2c") == {"retries": "2", "policy": "p2c"}
    assert written.write(retries="x", policy="random") == {"retries": "2", "policy": "random"}
    assert written.write(retries="y", policy="p2c") == {"retries": "2", "policy": "p2c"}
    assert written.at_fault == ["retries"]
    assert written.write(retries="z") == {"retries": "2"}
    assert written.write(policy="p2c") == {"policy": "p2c"}
    assert written.at_fault == []
    assert written.write(retries="y", policy="p2c") == {"policy": "p2c"}
    assert written.at_fault == ["retries"]


def test_since_when_settings_are_at_fault_is_kept_whichever_they_are() -> None:
    written = Written()
    written.write(retries="x")
    written.now = 200.0
    written.write(retries="3", policy="y")
    assert written.effective_settings.faults_since == {"/p": 100.0}
    written.write(policy="p2c")
    assert written.effective_settings.faults_since == {}
    written.effective_settings.told("/p", ["a setting without another"])
    written.now = 300.0
    written.effective_settings.told("/p", ["another"])
    assert written.effective_settings.faults_since == {"/p": 200.0}
    written.effective_settings.told("/p", [])
    assert written.effective_settings.faults_since == {}


def test_a_route_that_is_forgotten_leaves_neither_faults_nor_what_stood_in_their_place() -> None:
    written = Written()
    written.write(retries="2")
    written.write(retries="x")
    assert written.at_fault == ["retries"]
    written.effective_settings.forget("/p")
    assert (written.effective_settings.faults, written.effective_settings.faults_since) == ({}, {})
    assert written.effective_settings.fields("/p", record(retries="x"))[0] == {}
