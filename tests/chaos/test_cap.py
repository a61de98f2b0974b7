"""Who counts at the upstreams finds what is too many, and nothing else."""

from tests.chaos.cap import Cap, CountedLeases
from tests.chaos.history import Granted, History, Span

A, B = "10.0.0.1:80", "10.0.0.2:80"


def judged(cap: Cap) -> list[tuple[float, str]]:
    return [(each.time, each.what) for each in cap.judged(100.0, "stall")]


def test_one_after_another_and_on_different_upstreams_is_within_the_cap() -> None:
    cap = Cap(1)
    cap.began(1, "a", A, "i0")
    cap.began(1, "b", B, "i0")
    cap.ended("a")
    cap.began(2, "c", A, "i1")
    assert judged(cap) == []


def test_too_many_at_once_are_reported_once_with_the_most_of_them() -> None:
    cap = Cap(1)
    for time, ask in enumerate("abc"):
        cap.began(time, ask, A, f"i{time}")
    running = "i0 2000 ms ago, i1 1000 ms ago, i2 0 ms ago"
    assert judged(cap) == [(1, f"3 at once of 1 at {A} ({running}), 2 requests too many: stall")]
    assert judged(cap) == []


def test_while_it_is_excused_the_most_is_noted_and_no_fault_is_found() -> None:
    cap = Cap(1)
    cap.excused.append(Span(0, 10))
    for time, ask in ((5, "a"), (6, "b")):
        cap.began(time, ask, A, "i0")
    assert (judged(cap), cap.worst) == ([], 2)
    cap.began(11, "c", A, "i1")
    running = "i0 6000 ms ago, i0 5000 ms ago, i1 0 ms ago"
    assert judged(cap) == [(11, f"3 at once of 1 at {A} ({running}), 1 requests too many: stall")]
    assert cap.strict == 1


def test_a_thawed_instance_may_use_one_grant_late_and_only_at_once() -> None:
    cap = Cap(1)
    cap.began(1, "a", A, "i0")
    cap.thawed(1.5, "i1")
    cap.began(1.6, "b", A, "i1")
    assert (judged(cap), cap.late) == ([], 1)
    cap.ended("a")
    cap.began(1.65, "c", A, "i1")
    assert ([time for time, _ in judged(cap)], cap.late) == ([1.65], 1), "it runs, and counts"
    cap.ended("b")
    cap.ended("c")
    cap.thawed(2, "i2")
    cap.began(2.1, "d", A, "i2")
    cap.began(2.15, "e", A, "i3")
    assert (judged(cap), cap.late) == ([], 2), "the other comes behind it"
    cap.ended("e")
    cap.thawed(3, "i2")
    cap.began(3.3, "f", A, "i2")
    assert ([time for time, _ in judged(cap)], cap.late) == ([3.3], 2)


def test_a_client_that_has_left_is_not_counted_even_where_the_request_comes_later() -> None:
    history, cap = History(lambda: 0.0), Cap(1)
    leases = CountedLeases(history, cap)
    leases.began(Granted(1, "a", "i0", "/p", A, "batch"))
    leases.left("a", "i0")
    leases.began(Granted(2, "b", "i0", "/p", A, "batch"))
    leases.left("c", "i0")
    leases.began(Granted(3, "c", "i0", "/p", A, "batch"))
    leases.ended("a", "i0")
    assert judged(cap) == []
