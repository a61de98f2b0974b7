"""Where requests have failed is known for a while, of so many."""

from slb.balance.upstream import LiveUpstream
from slb.extproc.failures import Failures
from slb.model import Upstream


def _upstream(number: int) -> LiveUpstream:
    return LiveUpstream(Upstream.of(f"10.0.0.{number}:80", {}))


def test_each_failure_of_a_request_is_known_by_its_id() -> None:
    failures, first, second = Failures(lambda: 0.0), _upstream(1), _upstream(2)
    failures.note("a", first)
    failures.note("a", second)
    assert failures.of("a") == {first, second}
    assert failures.of("b") == frozenset()


def test_it_is_forgotten_after_a_minute() -> None:
    now = [0.0]
    failures = Failures(lambda: now[0])
    failures.note("a", _upstream(1))
    now[0] = 59.0
    assert failures.of("a")
    now[0] = 61.0
    assert not failures.of("a")


def test_what_strangers_can_fill_is_bounded() -> None:
    failures = Failures(lambda: 0.0)
    for number in range(5000):
        failures.note(f"{number}", _upstream(1))
    assert len(failures._known) <= 1024
    assert failures.of("4999")
    for number in range(100):
        failures.note("4999", _upstream(number))
    assert len(failures.of("4999")) <= 16
