"""The share of a new upstream grows over the fade-in, whatever the policy, and at no other's cost."""

from collections import Counter
from random import Random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from slb.balance.fade_in import deprioritized, fading_until
from slb.balance.policy import POLICIES
from slb.balance.upstream import Handle, LiveUpstream
from slb.balance.view import RouteView
from slb.model import PolicyName
from tests.unit.balance.upstreams import made_policy, name, upstream, upstreams

FADE_IN = 40.0
ROUNDS = 20_000


def joined(at: float, old: str = "abc", new: str = "n") -> tuple[LiveUpstream, ...]:
    """`old` have always been there, `new` joined at `at`."""
    return (*upstreams(old), *(upstream(each, seen=at) for each in new))


def faded(
    eligible: tuple[LiveUpstream, ...], now: float, fade_in: float, rng: Random, greedy: bool = False
) -> tuple[LiveUpstream, ...]:
    """Those that a request of that moment may be sent to."""
    view = RouteView(eligible, fade_in=fade_in, greedy=greedy)
    return view.left(view.deprioritized(now, rng))


def shares(policy: PolicyName, eligible: tuple[LiveUpstream, ...], now: float) -> dict[str, float]:
    """Of many requests, thirty of which are in flight at any time, the oldest ending first."""
    made, rng = made_policy(policy, 1), Random(2)
    view = RouteView(eligible, fade_in=FADE_IN, greedy=made.greedy)
    running: list[Handle] = []
    found: Counter[str] = Counter()
    for _ in range(ROUNDS):
        chosen = made.pick(view, without=view.deprioritized(now, rng))
        found[name(chosen)] += 1
        running.append(Handle(chosen))
        if len(running) > 30:
            running.pop(0).release()
    return {each: count / ROUNDS for each, count in found.items()}


@pytest.mark.parametrize("part", [0.25, 0.5, 0.75])
@pytest.mark.parametrize("policy", sorted(set(POLICIES) - {"p2c"}))
def test_a_new_upstream_has_its_part_of_a_share_and_the_others_are_even(policy: PolicyName, part: float) -> None:
    found = shares(policy, joined(at=100.0), 100.0 + part * FADE_IN)
    # Taken in turn it gets this part of one turn in four; by chance it is drawn from a set that is often smaller.
    assert part / 4 * 0.85 <= found["n"] <= part / (3 + part) * 1.1
    others = [found[each] for each in "abc"]
    assert max(others) - min(others) <= 0.02


def test_of_two_choices_a_new_upstream_wins_those_it_is_in_and_no_more() -> None:
    for part in (0.25, 0.5, 0.75):
        found = shares("p2c", joined(at=100.0), 100.0 + part * FADE_IN)
        assert part / 4 * 0.85 <= found["n"] <= 2 * part / 4 * 1.1


@pytest.mark.parametrize("policy", ["least_local", "least_inflight"])
def test_among_many_the_least_loaded_one_still_takes_the_whole_time(policy: PolicyName) -> None:
    found = shares(policy, joined(at=0.0, old="abcdefghijklmop"), FADE_IN / 2)
    assert 0.3 / 16 <= found["n"] <= 0.6 / 16


def test_a_greedy_policys_share_is_by_slots() -> None:
    eligible = (upstream("a", slots=3), upstream("n", slots=1, seen=0.0))
    kept = sum(len(faded(eligible, FADE_IN / 2, FADE_IN, Random(seed), greedy=True)) == 2 for seed in range(2000))
    assert 190 <= kept <= 310  # an eighth of 2000, within 4 standard deviations


@pytest.mark.parametrize("part", [0.1, 0.5, 0.9])
def test_round_robin_stays_exact_among_those_that_do_not_fade(part: float) -> None:
    eligible, made, rng = joined(at=0.0, old="abz", new="mn"), made_policy("round_robin", 1), Random(2)
    eligible = tuple(sorted(eligible, key=lambda live: live.member))
    view = RouteView(eligible, fade_in=FADE_IN)
    picked = [name(made.pick(view, without=view.deprioritized(part * FADE_IN, rng))) for _ in range(3000)]
    turns = "".join(each for each in picked if each in "abz")
    assert turns in "abz" * 1001
    for new in "mn":
        in_one_round = picked.count(new) / (len(turns) / 3)
        assert abs(in_one_round - part) <= 0.06


def test_at_first_a_new_upstream_gets_nothing_and_at_last_its_whole_share() -> None:
    eligible = joined(at=100.0)
    assert all(faded(eligible, 100.0, FADE_IN, Random(seed)) == eligible[:3] for seed in range(50))
    assert all(faded(eligible, 140.0, FADE_IN, Random(seed)) is eligible for seed in range(50))


def test_a_clock_read_before_it_was_seen_is_the_beginning() -> None:
    eligible = joined(at=100.0)
    assert deprioritized(eligible, 99.0, FADE_IN, Random(1)) == eligible[3:]


def test_the_very_same_tuple_comes_back_where_none_fades() -> None:
    for eligible in (upstreams("abc"), joined(at=-FADE_IN), ()):
        assert faded(eligible, 0.0, FADE_IN, Random(1)) is eligible
    eligible = joined(at=0.0)
    assert faded(eligible, 1.0, 0.0, Random(1)) is eligible
    assert any(faded(eligible, 20.0, FADE_IN, Random(seed)) is eligible for seed in range(10))


def test_a_whole_new_route_does_not_fade() -> None:
    eligible = joined(at=100.0, old="", new="abc")
    assert fading_until(eligible, FADE_IN) == 0.0
    assert all(faded(eligible, 100.0 + age, FADE_IN, Random(1)) is eligible for age in range(50))


def test_upstreams_of_a_new_route_that_came_a_little_later_fade_by_that_little() -> None:
    eligible = (upstream("a", seen=100.0), upstream("b", seen=104.0))
    both = sum(len(faded(eligible, 105.0, FADE_IN, Random(seed))) == 2 for seed in range(2000))
    assert 1740 <= both <= 1860  # nine tenths of 2000, within 4.5 standard deviations
    assert fading_until(eligible, FADE_IN) == 144.0


@given(
    seen=st.lists(st.floats(-100, 100) | st.just(float("-inf")), min_size=1, max_size=8),
    now=st.floats(-200, 200),
    fade_in=st.floats(0.001, 100),
    seed=st.integers(0, 99),
    greedy=st.booleans(),
)
@example(seen=[0.0, -17.0], now=-17.0, fade_in=0.8020958630929034, seed=0, greedy=True)
def test_one_is_always_left_and_none_fades_after_the_end(
    seen: list[float], now: float, fade_in: float, seed: int, greedy: bool
) -> None:
    eligible = tuple(upstream("abcdefgh"[place], seen=at) for place, at in enumerate(seen))
    left = faded(eligible, now, fade_in, Random(seed), greedy)
    assert left
    assert list(left) == [live for live in eligible if live in left]
    if now > fading_until(eligible, fade_in) + 1e-6:
        assert left is eligible
