"""Whether a request may be sent again: a budget for each route, and another upstream to send it to."""

from collections import Counter
from random import Random

import pytest

from slb.balance.retry import RetryBudget, RetryBudgets
from slb.proxy.retry import Retries
from tests.unit.routing.mirror_rig import A, B, C, make_mirror, record, replace


def test_the_budget_is_a_fifth_of_recent_requests() -> None:
    budget = RetryBudget(since=100.0)
    assert [budget.take(0, 100.0) for _ in range(4)] == [True, True, True, False]
    assert sum(budget.take(100, 101.0) for _ in range(100)) == 17


def test_the_budget_forgets_what_is_long_past() -> None:
    budget = RetryBudget(since=95.0)
    assert sum(budget.take(1000, 100.0) for _ in range(500)) == 200
    assert sum(budget.take(2000, 106.0) for _ in range(500)) == 200
    assert sum(budget.take(2000, 150.0) for _ in range(500)) == 3


@pytest.mark.parametrize("calm", [25.0, 3600.0])
def test_after_a_long_calm_the_first_failures_have_a_fifth_of_recent_requests_too(calm: float) -> None:
    """No budget is looked at while nothing fails."""
    budget = RetryBudget(since=0.0)
    assert sum(budget.take(int(100 * calm), calm) for _ in range(500)) == 200
    assert sum(budget.take(int(100 * calm * 2), calm * 2) for _ in range(500)) == 200


def test_the_budget_counts_the_requests_and_the_retries_of_this_window_and_of_the_one_before() -> None:
    budget = RetryBudget(since=0.0)
    assert sum(budget.take(100, 10.0) for _ in range(50)) == 20
    assert sum(budget.take(200, 10.1) for _ in range(50)) == 20
    assert sum(budget.take(400, 20.2) for _ in range(50)) == 20


class Setup:
    """Retries of the route `/p`, which has these members, at second 100. `finished`: by route."""

    def __init__(self, *members: str, **settings: str) -> None:
        self.mirror = make_mirror()
        replace(self.mirror, {"/p": record(*members, **settings), "/q": record(*members)})
        self.finished: Counter[str] = Counter()
        self.now = 100.0
        self.retries = Retries(self.finished.__getitem__, lambda: self.now, Random(1))
        self.budgets = RetryBudgets(self.finished.__getitem__, lambda: self.now)

    def affords(self, path: str, count: int) -> int:
        """How many of so many may be sent again."""
        return sum(self.budgets.afford(path) for _ in range(count))

    def has_more(self, tried: str = "", avoided: str = "") -> bool:
        live = self.mirror.upstreams
        of = dict(zip("abc", (A, B, C), strict=True))
        route = self.mirror.table.routes["/p"]
        return self.retries.has_more(
            route, tuple(live[of[each]] for each in tried), frozenset(live[of[each]] for each in avoided)
        )


def test_each_route_has_a_budget_of_its_own_by_how_many_of_its_requests_have_ended() -> None:
    setup = Setup(A)
    setup.finished["/p"] = 100
    assert (setup.affords("/p", 50), setup.affords("/q", 50)) == (20, 3)
    setup.now += 600
    assert setup.affords("/p", 50) == 3


@pytest.mark.parametrize(
    ("retries", "tried", "avoided", "expected"),
    [
        (1, "a", "a", True),
        (1, "ab", "ab", False),
        (2, "ab", "ab", True),
        (3, "abc", "abc", False),
        (0, "a", "a", False),
        (2, "aa", "a", True),
    ],
)
def test_there_is_another_attempt_where_the_route_has_one_and_an_upstream_for_it(
    retries: int, tried: str, avoided: str, expected: bool
) -> None:
    assert Setup(A, B, C, retries=str(retries)).has_more(tried, avoided) is expected
