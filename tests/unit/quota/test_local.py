"""What one instance admits by itself: a plain share of each limit."""

import pytest

from slb.quota.local import LocalShare
from slb.quotas import Admitted, Decision, Denied, Limits, Rules, Wait

MODEL = Limits(60_000, 6, burst=12_000)
"""A thousand tokens a second."""


class Alone:
    """One of `parts` instances, alone from the start; `now` in milliseconds."""

    def __init__(self, models: dict[str, Limits], parts: int = 2) -> None:
        self.now = 0
        self.parts = parts
        self.share = LocalShare(Rules(lease=20_000, kept=60_000), lambda: self.now, lambda: self.parts)
        self.models = models
        self.share.follow(models.items())

    def ask(self, task: str, tokens: int, models: list[str] | None = None, key: str = "") -> Decision:
        return self.share.schedule(task, tokens, models, key, jitter=500)

    def admitted(self, tokens: int, asks: int = 100) -> list[str]:
        """The tasks of those that are admitted now."""
        decisions = [self.ask(f"t{self.now}-{number}", tokens) for number in range(asks)]
        return [each.task for each in decisions if isinstance(each, Admitted)]


def test_it_begins_with_empty_buckets_and_fills_them_at_its_share_of_the_rate_up_to_its_share_of_a_bucket() -> None:
    alone = Alone({"a": Limits(60_000, 100, burst=12_000)})
    assert alone.ask("t", 1) == Wait(1_050, "redis_down")
    alone.now = 1_000
    assert len(alone.admitted(100)) == 5
    alone.now = 60_000
    assert len(alone.admitted(1_000)) == 6


def test_it_has_its_share_of_the_slots_and_gives_them_to_the_first_callers() -> None:
    alone = Alone({"a": MODEL})
    alone.now = 60_000
    first = alone.admitted(10)
    assert len(first) == 3
    assert alone.share.complete(first[0]) == "completed"
    assert alone.ask("next", 10) == Admitted("a", "next")


@pytest.mark.parametrize("parts", [1, 2, 3, 7])
def test_all_instances_together_admit_no_more_than_the_limit_and_a_bucket(parts: int) -> None:
    each = Alone({"a": Limits(6_001, 1_000, burst=1_003)}, parts)
    tokens = 0
    for each.now in range(0, 60_000, 500):
        tokens += len(each.admitted(7))
    assert parts * tokens * 7 <= 6_001 + 1_003
    assert parts * tokens * 7 >= 0.95 * 6_001


def test_estimates_stand_whatever_a_call_came_to() -> None:
    alone = Alone({"a": MODEL}, parts=1)
    alone.now = 60_000
    assert alone.ask("large", 12_000) == Admitted("a", "large")
    assert alone.share.complete("large") == "completed"
    assert alone.ask("next", 1) == Wait(1_050, "redis_down")


def test_the_model_whose_bucket_is_fullest_takes_it() -> None:
    alone = Alone({"a": MODEL, "b": MODEL})
    alone.now = 60_000
    given = [alone.ask(f"t{number}", 1_000) for number in range(4)]
    assert "".join(each.model for each in given if isinstance(each, Admitted)) == "abab"
    assert alone.ask("t5", 10, ["b"]) == Admitted("b", "t5")


def test_a_key_stands_for_one_request_while_its_task_runs() -> None:
    alone = Alone({"a": MODEL})
    alone.now = 60_000
    assert alone.ask("t1", 10, None, "k") == Admitted("a", "t1")
    assert alone.ask("t2", 10, None, "k") == Admitted("a", "t1")
    assert alone.ask("t2", 11, None, "k") == Denied("idempotency_mismatch")
    assert alone.ask("t2", 10, ["a"], "k") == Denied("idempotency_mismatch")
    alone.share.complete("t1")
    assert alone.ask("t3", 11, None, "k") == Admitted("a", "t3")


def test_a_lease_lapses_without_a_heartbeat_and_frees_the_slot() -> None:
    alone = Alone({"a": Limits(60_000, 4)})
    alone.now = 60_000
    assert (alone.ask("t1", 10), alone.ask("t2", 10)) == (Admitted("a", "t1"), Admitted("a", "t2"))
    alone.now = 70_000
    assert alone.share.heartbeat("t1") == "running"
    alone.now = 80_000
    alone.share.advance(is_alone=True)
    assert (alone.share.heartbeat("t1"), alone.share.heartbeat("t2")) == ("running", "abandoned")
    assert alone.share.complete("t2") == "abandoned"
    assert len(alone.admitted(10)) == 1


def test_what_became_of_a_task_is_known_for_a_while() -> None:
    alone = Alone({"a": MODEL})
    alone.now = 60_000
    assert not alone.share.has("t1")
    alone.ask("t1", 10)
    assert alone.share.complete("t1") == "completed"
    alone.now = 119_999
    alone.share.advance(is_alone=True)
    assert alone.share.complete("t1") == "completed"
    alone.now = 120_000
    alone.share.advance(is_alone=True)
    assert not alone.share.has("t1")
    assert alone.share.complete("t1") is None


def test_in_the_next_outage_buckets_are_empty_again_and_what_still_runs_holds_its_slot() -> None:
    alone = Alone({"a": MODEL})
    alone.now = 5_000
    assert alone.ask("t1", 10) == Admitted("a", "t1")
    alone.share.advance(is_alone=False)
    alone.parts = 3
    alone.share.follow({"a": MODEL, "b": Limits(60_000, 2)}.items())
    assert alone.ask("t2", 10) == Wait(1_050, "redis_down")
    alone.now = 10_000
    assert len(alone.admitted(10)) == 1, "of two slots"
    assert alone.ask("t3", 10, ["b"]) == Wait(1_050, "no_local_share"), "a third of two slots"


def test_what_no_share_takes_has_another_reason_than_what_no_model_takes() -> None:
    alone = Alone({"a": MODEL, "b": Limits(60_000, 6, burst=9_000, paused=True)})
    alone.now = 60_000
    assert alone.ask("t", 6_001) == Wait(1_050, "no_local_share")
    assert alone.ask("t", 12_001) == Denied("estimate_exceeds_limit", "a", 12_000)
    assert alone.ask("t", 10, ["b"]) == Wait(1_050, "paused")
    assert alone.ask("t", 10, ["new"]) == Wait(1_050, "redis_down"), "Redis may have it"
    assert Alone({}).ask("t", 10) == Wait(1_050, "redis_down")
