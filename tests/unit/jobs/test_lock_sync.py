"""Which slots that are held back a GPU's answer frees."""

import pytest

from slb.balance.upstream import Handle, LiveUpstream
from slb.job import ModelConfig
from slb.jobs.lock_sync import FRESH, HeldSlot, active_jobs_in, no_longer_used
from slb.model import Upstream


def held(count: int, began: float = 0.0) -> list[HeldSlot]:
    """Slots of one GPU, given up one after another."""
    upstream = LiveUpstream(Upstream.of("10.0.0.1:80"))
    return [HeldSlot(Handle(upstream), f"job-{number}", began, 600.0) for number in range(count)]


def test_a_gpu_that_runs_nothing_frees_all() -> None:
    slots = held(3)
    assert no_longer_used(slots, 0, None, asked_at=100.0) == slots


@pytest.mark.parametrize(("active", "in_flight", "freed"), [(1, 1, 0), (2, 2, 0), (1, 2, 1), (1, 4, 2), (3, 2, 0)])
def test_a_gpu_that_runs_fewer_than_are_in_flight_frees_those_given_up_first(
    active: int, in_flight: int, freed: int
) -> None:
    slots = held(2)
    assert no_longer_used(slots, active, in_flight, asked_at=100.0) == slots[:freed]


def test_nothing_is_freed_by_a_gpu_that_is_busy_while_it_is_not_known_what_is_in_flight() -> None:
    assert no_longer_used(held(2), 1, None, asked_at=100.0) == ()


def test_an_attempt_is_fresh_for_five_seconds_and_a_gpu_may_not_count_it_yet() -> None:
    assert FRESH == 5.0
    slots = held(1, began=100.0)
    assert no_longer_used(slots, 0, None, asked_at=104.9) == []
    assert no_longer_used(slots, 0, None, asked_at=105.0) == slots


@pytest.mark.parametrize(
    ("body", "active"),
    [
        (b'{"active_jobs": 2}', 2),
        (b'{"active_jobs": []}', 0),
        (b'{"active_jobs": ["a", "b"]}', 2),
        (b'{"active_jobs": {"a": {}}}', 1),
        (b'{"active_jobs": -1}', None),
        (b'{"active_jobs": true}', None),
        (b'{"active_jobs": "2"}', None),
        (b'{"status": "healthy"}', None),
        (b"[]", None),
        (b"OK", None),
    ],
)
def test_what_a_gpu_says_that_it_runs(body: bytes, active: int | None) -> None:
    assert active_jobs_in(body, ModelConfig()) == active


def test_the_field_may_stand_within_others() -> None:
    config = ModelConfig(active_jobs_field="gpu.jobs")
    assert active_jobs_in(b'{"gpu": {"jobs": 3}}', config) == 3
    assert active_jobs_in(b'{"gpu": 3}', config) is None
