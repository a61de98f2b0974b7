"""The frames of all processes, as one viewer keeps them."""

from typing import Any

from slb.fleet.collected import GONE, MOST_PROCESSES, MOST_STRANGERS, SILENT, Collected
from slb.fleet.frame import NO_UPSTREAM_ROW, Frame, UpstreamRow

BUSY: UpstreamRow = (1, "", 2, 0, 1.0, 0.0, 0.1)
ALL = {"a", "b"}


def frame(id_: str, number: int, full: bool = False, **more: Any) -> Frame:
    return Frame(id_, number, full, {"name": id_}, **more)


def take(collected: Collected, given: Frame, now: float, alive: set[str] | None = None) -> None:
    collected.take(given, now, ALL, {"/p"}, alive or set())


def test_rows_of_what_this_process_does_not_know_are_dropped() -> None:
    collected = Collected()
    take(collected, frame("1", 1, True, upstreams={"a": BUSY, "x": BUSY}), 0.0)
    assert set(collected.upstreams) == {"a"}
    assert collected.touched_upstreams == {"a"}


def test_a_row_stays_until_it_changes_or_all_are_sent_again() -> None:
    collected = Collected()
    take(collected, frame("1", 1, True, upstreams={"a": BUSY}), 0.0)
    take(collected, frame("1", 2, upstreams={"b": BUSY}), 1.0)
    assert set(collected.upstreams) == {"a", "b"}
    assert not collected.has_missed
    take(collected, frame("1", 3, True, upstreams={"b": NO_UPSTREAM_ROW}), 2.0)
    assert set(collected.upstreams) == {"b"}


def test_a_frame_that_was_missed_is_noticed() -> None:
    collected = Collected()
    take(collected, frame("1", 5), 0.0)
    assert collected.has_missed, "of one that is heard for the first time"
    collected.has_missed = False
    take(collected, frame("1", 6), 1.0)
    assert not collected.has_missed
    take(collected, frame("1", 8), 2.0)
    assert collected.has_missed


def test_frames_that_come_too_fast_are_not_read() -> None:
    collected = Collected()
    take(collected, frame("1", 1, True), 0.0)
    take(collected, frame("1", 2, upstreams={"a": BUSY}), 0.1)
    assert not collected.upstreams


def test_what_one_that_is_silent_showed_counts_no_more() -> None:
    collected = Collected()
    take(collected, frame("1", 1, True, upstreams={"a": BUSY}, jobs={"flux": {"dead": 1}}), 0.0)
    collected.touched_upstreams.clear()
    collected.leave_out(SILENT, {"1"})
    assert not collected.upstreams
    assert collected.touched_upstreams == {"a"}
    assert list(collected.living(SILENT)) == []
    collected.leave_out(GONE, {"1"})
    assert "1" in collected.processes, "it still beats"
    collected.leave_out(GONE, set())
    assert not collected.processes


def test_so_many_are_kept_and_those_that_beat_go_first() -> None:
    collected = Collected()
    for number in range(2 * MOST_PROCESSES):
        take(collected, frame(f"fake-{number}", 1, True), 0.0)
    assert len(collected.processes) == MOST_STRANGERS
    real = {f"real-{number}" for number in range(2 * MOST_PROCESSES)}
    for each in sorted(real):
        take(collected, frame(each, 1, True), 0.0, real)
    assert len(collected.processes) == MOST_PROCESSES
    assert collected.processes.keys() <= real


def test_one_that_shows_itself_seldom_as_in_a_large_fleet_is_not_silent() -> None:
    collected = Collected()
    collected.silent_after = 40.0
    take(collected, frame("1", 1, True, upstreams={"a": BUSY}), 0.0)
    collected.leave_out(2 * SILENT, {"1"})
    assert set(collected.upstreams) == {"a"}
    assert [id_ for id_, _ in collected.living(2 * SILENT)] == ["1"]


def test_of_a_ring_only_what_this_process_knows_is_kept() -> None:
    collected = Collected()
    shares = {"shares": [("a", 0.5), ("x", 0.5)]}
    take(collected, frame("1", 1, True, rings={"/p": shares, "/x": shares}), 0.0)
    assert collected.processes["1"].more["rings"] == {"/p": {"shares": [("a", 0.5)]}}


def test_rows_of_what_has_left_are_forgotten() -> None:
    collected = Collected()
    take(collected, frame("1", 1, True, upstreams={"a": BUSY, "b": BUSY}), 0.0)
    collected.forget({"b"}, set())
    assert set(collected.upstreams) == {"b"}
    collected.leave_out(SILENT, set())
    assert not collected.upstreams


def test_since_when_an_upstream_is_out_is_told_by_the_readers_clock_and_goes_with_its_row() -> None:
    collected = Collected()
    out: UpstreamRow = (4, "/h: 500", 0, 0, 0.0, 0.0, 0.0)
    ahead = Frame("1", 1, True, {"now": 1007.0}, {"a": out, "x": out}, since={"a": 907.0, "x": 907.0})
    collected.take(ahead, 0.0, ALL, {"/p"}, set(), wall=1000.0)
    take(collected, frame("2", 1, True, upstreams={"a": out}, since={"a": 950.0}), 0.0)
    assert collected.since("a") == {"1": 900.0, "2": 950.0}
    assert collected.since("b") == collected.since("x") == {}
    take(collected, frame("2", 2, upstreams={"a": BUSY}), 1.0)
    assert collected.since("a") == {"1": 900.0}
    collected.leave_out(SILENT, set())
    assert collected.since("a") == {}


def test_the_way_of_a_frame_does_not_change_since_when_an_upstream_is_out() -> None:
    collected, out = Collected(), (3, "stuck", 0, 0, 0.0, 0.0, 0.0)
    told = Frame("1", 1, True, {"now": 999.5}, {"a": out}, since={"a": 907.956})
    collected.take(told, 0.0, {"a"}, set(), set(), 1000.0)
    assert collected.since("a") == {"1": 907.956}


def test_one_process_that_sets_an_upstream_aside_is_enough_until_it_says_so_no_more() -> None:
    collected = Collected()
    take(collected, frame("1", 1, True, busy=["a", "x"]), 0.0)
    take(collected, frame("2", 1, True), 0.0)
    assert collected.is_busy("a")
    assert not collected.is_busy("x")
    assert collected.touched_upstreams == {"a"}
    collected.touched_upstreams.clear()
    take(collected, frame("1", 2), 1.0)
    assert not collected.is_busy("a")
    assert collected.touched_upstreams == {"a"}
    take(collected, frame("1", 3, busy=["a", "b"]), 2.0)
    collected.forget({"b"}, set())
    assert (collected.is_busy("a"), collected.is_busy("b")) == (False, True)
    collected.leave_out(2.0 + SILENT, set())
    assert not collected.is_busy("b")


def test_who_would_eject_an_upstream_is_known_until_it_says_so_no_more() -> None:
    collected = Collected()
    take(collected, frame("1", 1, True, spared=["a", "x"]), 0.0)
    take(collected, frame("2", 1, True, spared=["a"]), 0.0)
    assert (collected.spared_by("a"), collected.spared_by("x")) == ({"1", "2"}, set())
    collected.touched_upstreams.clear()
    take(collected, frame("1", 2), 1.0)
    assert (collected.spared_by("a"), collected.touched_upstreams) == ({"2"}, {"a"})
    collected.forget({"b"}, set())
    assert collected.spared_by("a") == set()
    take(collected, frame("1", 3, spared=["b"]), 2.0)
    collected.leave_out(2.0 + SILENT, set())
    assert collected.spared_by("b") == set()


def test_who_finds_an_upstream_stuck_is_known_until_it_says_so_no_more() -> None:
    collected = Collected()
    take(collected, frame("1", 1, True, stuck=["a", "x"]), 0.0)
    take(collected, frame("2", 1, True, stuck=["a"]), 0.0)
    assert (collected.stuck_for("a"), collected.stuck_for("x")) == ({"1", "2"}, set())
    collected.touched_upstreams.clear()
    take(collected, frame("1", 2), 1.0)
    assert (collected.stuck_for("a"), collected.touched_upstreams) == ({"2"}, {"a"})
    collected.forget({"b"}, set())
    assert collected.stuck_for("a") == set()
    take(collected, frame("1", 3, stuck=["b"]), 2.0)
    collected.leave_out(2.0 + SILENT, set())
    assert collected.stuck_for("b") == set()


def test_since_when_a_route_is_in_trouble_is_told_by_who_knows_it_for_longest_by_our_clock() -> None:
    collected, ahead = Collected(), {"name": "2", "now": 1000.0}
    take(collected, frame("1", 1, True, empty_since={"/p": 50.0, "/x": 10.0}), 0.0)
    late = Frame("2", 1, True, ahead, empty_since={"/p": 1040.0}, faults_since={"/p": 1030.0})
    collected.take(late, 0.0, ALL, {"/p"}, set(), wall=60.0)
    assert (collected.empty_since("/p"), collected.faults_since("/p")) == (50.0, 90.0)
    assert collected.empty_since("/x") is None
    take(collected, frame("1", 2), 1.0)
    assert collected.empty_since("/p") == 100.0
    collected.leave_out(0.5 + SILENT, {"1"})
    assert (collected.empty_since("/p"), collected.faults_since("/p")) == (None, None)


def test_how_long_first_bytes_take_goes_with_the_row_of_the_upstream() -> None:
    collected = Collected()
    row = (1, "", 0, 0, 1.0, 0.0, 0.5)
    take(collected, frame("1", 1, True, upstreams={"a": row, "x": row}, first_bytes={"a": 0.2, "x": 0.3}), 0.0)
    assert collected.first_bytes("a") == {"1": 0.2}
    assert collected.first_bytes("x") == {}
    collected.forget({}, {})
    assert collected.first_bytes("a") == {}
