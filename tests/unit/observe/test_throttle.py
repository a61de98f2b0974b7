"""How much of the log strangers may fill."""

from collections.abc import Callable

import pytest
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


@pytest.mark.parametrize(
    ("rate", "size", "steps"),
    [
        (1000, 100, [(0.0, 100), (1.0, 10), (1000.0, 100)]),
        (10, 1000, [(0.0, 1), (89.0, 0), (91.0, 1)]),
    ],
    ids=["ten seconds' worth may come at once and then so much a second", "a long line is paid for by the next"],
)
def test_so_many_lines_are_let_through(rate: int, size: int, steps: list[tuple[float, int]]) -> None:
    now = [0.0]
    bucket = Throttle(rate, at(now))
    for seconds, lines in steps:
        now[0] = seconds
        assert written(bucket, 500, size) == lines


def test_none_is_no_limit_and_another_holds_at_once() -> None:
    bucket = Throttle(0, at([0.0]))
    assert written(bucket, 1000, 1000) == 1000
    bucket.set_rate(1)
    assert written(bucket, 1000, 1000) == 1


async def test_what_was_left_out_is_logged_once_in_a_while_and_only_where_something_was() -> None:
    bucket = Throttle(1, at([0.0]), report_every=0.0)
    with capture_logs() as logs:
        written(bucket, 5, 1000)
        await eventually(lambda: bool(logs), what="a word about it")
        bucket.report()
        written(bucket, 3, 1000)
        bucket.report()
    assert [(line["event"], line["lines"]) for line in logs] == [
        ("access_log_suppressed", 4),
        ("access_log_suppressed", 3),
    ]
