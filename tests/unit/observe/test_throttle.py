"""How much of the log strangers may fill."""

from collections.abc import Callable

from structlog.testing import capture_logs

from slb.observe.throttle import Throttle
from tests.support.waiting import eventually


def at(seconds: list[float]) -> Callable[[], float]:
    return lambda: seconds[0]


def written(bucket: Throttle, lines: int, size: int) -> int:
    count = 0
    for _ in range(lines):
        if bucket.allows():
            bucket.spend(size)
            count += 1
    return count


def test_ten_seconds_worth_may_come_at_once_and_then_so_much_a_second() -> None:
    now = [0.0]
    bucket = Throttle(1000, at(now))
    assert written(bucket, 500, 100) == 100
    now[0] = 1.0
    assert written(bucket, 500, 100) == 10
    now[0] = 1000.0
    assert written(bucket, 500, 100) == 100


def test_a_long_line_is_paid_for_by_those_that_follow() -> None:
    now = [0.0]
    bucket = Throttle(10, at(now))
    assert written(bucket, 9, 1000) == 1
    now[0] = 89.0
    assert written(bucket, 9, 1000) == 0
    now[0] = 91.0
    assert written(bucket, 9, 1000) == 1


def test_none_is_no_limit_and_another_holds_at_once() -> None:
    bucket = Throttle(0, at([0.0]))
    assert written(bucket, 1000, 1000) == 1000
    bucket.set_rate(1)
    assert written(bucket, 1000, 1000) == 1


async def test_what_was_left_out_is_told_once_in_a_while_and_only_where_something_was() -> None:
    bucket = Throttle(1, at([0.0]), tell_every=0.0)
    with capture_logs() as logs:
        written(bucket, 5, 1000)
        await eventually(lambda: bool(logs), what="a word about it")
        bucket.tell()
        written(bucket, 3, 1000)
        bucket.tell()
    assert [(line["event"], line["lines"]) for line in logs] == [
        ("access_log_suppressed", 4),
        ("access_log_suppressed", 3),
    ]
