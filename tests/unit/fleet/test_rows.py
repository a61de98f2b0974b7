"""Rows that are sent as they change."""

from slb.fleet.rows import Rows


def test_a_row_is_sent_when_it_has_changed_and_not_again() -> None:
    rows = Rows[int](10, 0)
    rows.offer("a", 1)
    rows.offer("b", 0)
    assert rows.take() == [("a", 1)]
    rows.offer("a", 1)
    assert rows.take() == []
    rows.offer("a", 2)
    rows.offer("a", 1)
    assert rows.take() == [], "it is again what was sent"
    rows.offer("a", 0)
    assert rows.take() == [("a", 0)]


def test_only_so_many_go_at_a_time_the_oldest_change_first() -> None:
    rows = Rows[int](2, 0)
    for name in "abcde":
        rows.offer(name, 1)
    taken = [rows.take()]
    for name in "abcde":
        rows.offer(name, 2)
    taken += [rows.take(), rows.take(), rows.take()]
    assert [[name for name, _ in each] for each in taken] == [["a", "b"], ["c", "d"], ["e", "a"], ["b"]]


def test_what_is_urgent_goes_before_all_else_and_once() -> None:
    rows = Rows[int](2, 0)
    for name in "abc":
        rows.offer(name, 1)
    rows.offer("c", 2, is_urgent=True)
    rows.offer("d", 2, is_urgent=True)
    assert rows.take() == [("c", 2), ("d", 2)]
    assert rows.take() == [("a", 1), ("b", 1)]
    rows.offer("c", 0, is_urgent=False)
    assert rows.take() == [("c", 0)]


def test_what_is_kept_no_more_is_nothing() -> None:
    rows = Rows[int](10, 0)
    rows.offer("a", 1)
    rows.offer("b", 1)
    rows.take()
    rows.offer("c", 1)
    rows.keep({"b"})
    assert rows.take() == [("a", 0)]


def test_after_a_beginning_all_rows_are_sent_again() -> None:
    rows = Rows[int](10, 0)
    rows.offer("a", 1)
    rows.take()
    rows.begin_anew()
    rows.offer("a", 1)
    assert rows.take() == [("a", 1)]
