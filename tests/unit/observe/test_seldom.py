"""Events that are reported now and then."""

from slb.observe.throttle import Seldom
from tests.support.waiting import eventually, patience


async def test_the_first_is_reported_at_once_and_those_behind_it_when_the_period_ends() -> None:
    reported: list[tuple[int, str]] = []
    seldom: Seldom[str] = Seldom(patience(0.2), lambda count, about: reported.append((count, about)))
    for each in ("a", "b", "c"):
        seldom.count(each)
    assert reported == [(1, "a")]
    await eventually(lambda: len(reported) == 2, what="the rest")
    seldom.count("d")
    assert reported == [(1, "a"), (2, "c")]  # a period begins with each report
    await eventually(lambda: len(reported) == 3, what="what came in the second period")
    assert reported[-1] == (1, "d")


async def test_after_a_period_without_any_the_next_is_reported_at_once() -> None:
    reported: list[int] = []
    seldom: Seldom[None] = Seldom(0.01, lambda count, _: reported.append(count))
    seldom.count(None)
    await eventually(lambda: not seldom.keeps_quiet, what="the period has ended")
    assert reported == [1]
    seldom.count(None)
    assert reported == [1, 1]
