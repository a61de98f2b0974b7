"""The handoff: what pods note of themselves, and its goals."""

from collections.abc import Callable
from random import Random

from bench.figures.handoff import Run
from bench.pods import Book, Noting, Schedule


def test_a_pod_is_idle_from_the_end_of_one_request_to_the_beginning_of_the_next() -> None:
    book = Book()
    book.begin("pod", "a", 1.0)
    book.end("pod", "a", 2.0)
    book.begin("pod", "a", 2.25)
    book.end("pod", "a", 3.0)
    book.begin("pod", "b", 3.5)
    taken = book.take()
    assert (taken["gaps"], taken["crowded"]) == ([(0.25, True), (0.5, False)], 0)
    assert book.take()["gaps"] == []


def test_a_request_that_comes_to_a_busy_pod_crowds_it_and_is_no_gap() -> None:
    book = Book()
    book.begin("pod", "a", 1.0)
    book.begin("pod", "b", 1.5)
    book.end("pod", "a", 2.0)
    book.end("pod", "b", 2.5)
    book.begin("pod", "a", 3.0)
    taken = book.take()
    assert (taken["gaps"], taken["crowded"]) == ([(0.5, False)], 1)
    assert (taken["present"], taken["most"]) == ({"pod": 1}, {"pod": 2})


def test_a_request_ends_once_whether_it_is_answered_or_its_connection_is_gone() -> None:
    book, served, replies = Book(), list[Callable[[], None]](), list[bytes]()
    pod = Noting("pod", lambda when, callback: served.append(callback), book, Schedule(Random(1), 0.1))
    gone = pod.take(b"/p?0", 0.0, replies.append)
    assert gone is not None
    assert book.take()["present"] == {"pod": 1}
    assert (gone(), gone(), book.present["pod"]) == (True, False, 0)
    served[0]()
    assert replies == []
    pod.take(b"/p?0", 0.0, replies.append)
    served[1]()
    assert (len(replies), book.present["pod"]) == (1, 0)


def test_in_step_all_requests_end_at_one_moment_and_each_takes_half_a_service_at_least() -> None:
    schedule = Schedule(Random(1), 0.1, in_step=True)
    assert {round(schedule.end_of(now), 6) for now in (10.0, 10.02, 10.049)} == {10.1}
    assert round(schedule.end_of(10.06), 6) == 10.2


def test_out_of_step_services_differ_about_their_mean() -> None:
    schedule = Schedule(Random(1), 0.1)
    ends = {schedule.end_of(5.0) for _ in range(100)}
    assert len(ends) == 100
    assert all(5.075 <= end <= 5.125 for end in ends)


def run(seconds: float, instances: int = 10) -> Run:
    return Run(instances, "out of step", [(seconds, True), (seconds, False)], 0)


def test_the_goals_are_those_of_ten_instances_and_the_median_of_others() -> None:
    assert [figure.met for figure in run(0.001).goals(pods=20)] == [True, True, True]
    assert [figure.met for figure in run(0.006).goals(pods=20)] == [False, False, False]
    assert [figure.met for figure in run(0.001, instances=5).goals(pods=20)] == [True]
    assert run(0.001).goals(pods=19) == []


def test_gaps_are_split_by_whether_both_requests_came_through_one_instance() -> None:
    mixed = Run(2, "in step", [(0.001, True), (0.002, False), (0.004, False)], 1)
    assert mixed.cells() == ["2", "in step", "2", "4", "1", "1", "2", "4", "3", "1"]
