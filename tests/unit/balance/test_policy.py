"""What holds for every policy."""

from random import Random
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slb.balance.policy import POLICIES
from slb.model import PolicyName
from tests.unit.balance.upstreams import upstreams

NAMES = sorted(POLICIES)


def test_every_name_a_user_may_type_has_its_policy() -> None:
    assert set(POLICIES) == set(get_args(PolicyName))


@pytest.mark.parametrize("policy", NAMES)
@given(sets=st.lists(st.sets(st.sampled_from("abcdef"), min_size=1), max_size=15), seed=st.integers(0, 99))
def test_whoever_is_picked_was_eligible(policy: PolicyName, sets: list[set[str]], seed: int) -> None:
    made = POLICIES[policy](Random(seed))
    for names in sets:
        eligible = upstreams("".join(sorted(names)))
        assert made.pick(eligible) in eligible


@pytest.mark.parametrize("policy", NAMES)
def test_everyone_gets_something(policy: PolicyName) -> None:
    eligible, made = upstreams("abc"), POLICIES[policy](Random(1))
    assert {made.pick(eligible) for _ in range(60)} == set(eligible)
