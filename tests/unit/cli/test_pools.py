"""What several workers report of the pools and of the last decision, as one."""

from typing import Any

import pytest
from rich.table import Table

from slb.admission.shown import Decision, MemberDecision, PoolShown
from slb.api.show_route import latest
from slb.cli.tables import _everywhere, _pools
from slb.supervisor.sums import combined


def pool(**figures: Any) -> PoolShown:
    nothing = PoolShown(mode="shared", error="", holders=0, queued=0, held={}, waiting={}, scores={})
    return {**nothing, **figures}  # type: ignore[typeddict-item]


def decision(seconds_ago: float | None, score: int = 0) -> Decision:
    return Decision(
        decided_by="policy" if seconds_ago is None else "redis",
        policy="p2c",
        seconds_ago=seconds_ago,
        outcome=None,
        chosen=None,
        reason=None,
        priority=None,
        position=None,
        waited=0.0,
        members=[MemberDecision(member="a:80", score=score, capacity=0, verdict="eligible")],
    )


def test_without_workers_there_are_no_pools() -> None:
    assert combined(()) == {"pools": {}}


def test_what_each_holds_is_added_and_what_all_see_is_not() -> None:
    one = pool(holders=2, queued=3, held={"a:80": 1}, waiting={"/p": {"x": 1}}, scores={"a:80": 2, "b:80": 1})
    two = pool(holders=2, queued=4, held={"a:80": 1}, waiting={"/p": {"x": 2, "y": 1}}, scores={"a:80": 1})
    expected = pool(
        holders=2,
        queued=4,
        held={"a:80": 2},
        waiting={"/p": {"x": 3, "y": 1}},
        scores={"a:80": 2, "b:80": 1},
    )
    assert combined(({"pools": {"/p": one}}, {"pools": {"/p": two, "/q": one}})) == {
        "pools": {"/p": expected, "/q": one}
    }


def test_of_the_modes_the_worst_is_shown_and_why() -> None:
    parts = [pool(), pool(mode="settling"), pool(mode="local", error="no answer in time")]
    for order in (parts, parts[::-1]):
        (shown,) = combined({"pools": {"/p": each}} for each in order)["pools"].values()
        assert (shown["mode"], shown["error"]) == ("local", "no answer in time")
    assert combined({"pools": {"/p": each}} for each in parts[:2])["pools"]["/p"]["mode"] == "settling"


@pytest.mark.parametrize("name", ["queued", "holders"])
def test_figures_of_the_fleet_are_those_of_workers_that_have_them(name: str) -> None:
    for parts, found in (((None, 2, 1), 2), ((None, None), None)):
        pools = ({"/p": pool(**{name: each})} for each in parts)
        assert combined({"pools": each} for each in pools)["pools"]["/p"][name] == found  # type: ignore[literal-required]


def test_scores_are_those_of_a_worker_that_has_read_them() -> None:
    for parts, found in (((None, {"a:80": 2}, {"a:80": 1}), {"a:80": 2}), ((None, {}), {}), ((None, None), None)):
        pools = ({"/p": pool(scores=each)} for each in parts)
        assert combined({"pools": each} for each in pools)["pools"]["/p"]["scores"] == found


def test_the_tables_have_nothing_where_the_figures_of_the_fleet_are_unknown() -> None:
    pools = {"/p": pool(mode="local", queued=None, holders=None, scores=None), "/q": pool(queued=0, holders=2)}
    (table,) = _pools(pools).fitted(1000)
    assert isinstance(table, Table)
    assert [list(table.columns[place].cells) for place in (2, 5)] == [["", "2"], ["", "0"]]
    settings = {"pool": "", "max_inflight": 4, "policy": "least_inflight"}
    shown = [
        _everywhere({"path": path, "settings": settings}, {"member": "a:80", "slots": 2}, pools)
        for path in ("/p", "/q", "/unknown")
    ]
    assert shown == ["", "0 of 8", ""]


def test_the_latest_decision_of_all_is_the_last() -> None:
    assert latest(()) is None
    assert latest((None, None)) is None
    assert latest((decision(3.0), None, decision(1.0), decision(2.0))) == decision(1.0)


def test_where_each_decides_for_itself_what_is_in_flight_is_added() -> None:
    assert latest((decision(None, 2), None, decision(None, 3))) == decision(None, 5)
