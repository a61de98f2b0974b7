"""The checker of the quota router: it finds what is wrong, and nothing else."""

from math import inf
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.chaos.quota_history import History, Promise, Taken, faults, most_held, overdrawn, spent

HELD = {"m": Promise(rate=10, burst=100, slots=2)}


def taken(at: float, estimate: int = 10, done: float = 0.0, state: str = "completed") -> Taken:
    ends = done or at + 1
    return Taken("m", estimate, at, at, ends, ends, state)


def lost(at: float, estimate: int = 10) -> Taken:
    return Taken("m", estimate, at, at)


def history(*tasks: Taken) -> History:
    return History({str(number): each for number, each in enumerate(tasks)}, {}, [])


def found(*tasks: Taken) -> list[str]:
    return faults(history(*tasks), HELD, lease=5, slack=0)


def test_a_bucket_and_its_refill_are_right_and_a_token_more_is_found() -> None:
    assert not found(taken(0, 100, done=0.5), taken(1, 10), taken(2, 10))
    assert "1 tokens more" in found(taken(0, 100), taken(1, 11))[0]


def test_what_was_taken_back_may_be_given_again_but_not_twice() -> None:
    given = history(lost(0, 100), taken(1, 50), taken(2, 10))
    given.returned["m"] = [(0.5, 40)]
    assert not faults(given, HELD, lease=5, slack=0)
    given.tasks["more"] = taken(2, 1)
    assert "1 tokens more" in faults(given, HELD, lease=1, slack=0)[0]


def test_an_interval_may_have_what_was_given_back_in_it_besides() -> None:
    tasks = [taken(0, 100), taken(2, 50)]
    for at, tokens, over in ((1.0, 30, 0), (1.0, 20, 10), (3.0, 30, 30), (-1.0, 30, 30)):
        assert overdrawn(tasks, rate=10, burst=100, returned=[(at, tokens)]) == pytest.approx(over)


def test_the_worst_interval_is_found_wherever_it_is() -> None:
    tasks = [*(taken(float(at), 10) for at in range(0, 100, 10)), taken(200.0, 60), taken(201.0, 60)]
    assert overdrawn(tasks, rate=10, burst=100) == pytest.approx(10)


def test_doubt_about_the_moment_of_a_decision_makes_no_fault() -> None:
    assert overdrawn([Taken("m", 100, 0.0, 9.0), Taken("m", 100, 9.0, 10.0)], rate=10, burst=100) <= 0


def test_so_is_one_more_at_once_than_there_are_slots() -> None:
    assert not found(taken(0, done=2), taken(0, done=2), taken(2, done=3))
    assert found(taken(0, done=2), taken(0, done=2), taken(1.9)) == ["m: 3 at once of 2"]


def test_a_dead_callers_slots_are_taken_until_its_lease_can_have_lapsed() -> None:
    assert found(lost(0), lost(0), taken(4.9)) == ["m: 3 at once of 2"]
    assert not found(lost(0), lost(0), taken(5.1))


def test_two_callers_with_one_task_are_a_fault() -> None:
    given = history(taken(0))
    given.twice.append("0")
    assert faults(given, HELD, lease=5, slack=0) == ["task 0 was given twice"]


def test_spent_is_what_was_completed_and_perhaps_what_was_never_confirmed() -> None:
    unconfirmed = Taken("m", 7, 0, 0, done=1)
    assert spent([taken(0, 10), taken(0, 20, state="abandoned"), unconfirmed, lost(0, 40)]) == (10, 17)


def test_slots_are_counted_only_where_they_are_certainly_held() -> None:
    assert most_held([Taken("m", 1, 0, admitted=3, done=2)], lease=5) == 0
    assert most_held([Taken("m", 1, 0, admitted=inf)], lease=5) == 0


def test_files_are_read_whatever_their_callers_lived_to_write(tmp_path: Path) -> None:
    admitted = {"event": "admitted", "task": "t", "model": "m", "estimate": 5, "asked": 1.0, "admitted": 2.0}
    lines: list[dict[str, Any]] = [
        {"event": "wait", "reason": ""},
        admitted,
        {"event": "done", "task": "t", "at": 3.0},
    ]
    (tmp_path / "a").write_bytes(b"".join(orjson.dumps(line) + b"\n" for line in lines))
    read = History.read([tmp_path / "a"])
    assert read.tasks == {"t": Taken("m", 5, 1.0, 2.0, 3.0)}
    assert read.waits == {"": 1}
    (tmp_path / "b").write_bytes(orjson.dumps({**admitted, "asked": 9.0}))
    assert History.read([tmp_path / "a", tmp_path / "b"]).twice == ["t"]
