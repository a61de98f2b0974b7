"""The wait of `slb drain --wait`: what ends it, and what does not."""

from typing import Any

import pytest

from slb.cli.client import ApiError
from slb.cli.draining import Waiting

MEMBER = "10.0.0.1:80"
EMPTY: dict[str, Any] = {
    "member": MEMBER,
    "drain": True,
    "inflight": 0,
    "instances": {},
    "elsewhere": 0,
    "unknown": [],
    "unaware": [],
    "empty": True,
}
BUSY = {**EMPTY, "inflight": 3, "instances": {"one": 1, "two": 2}, "empty": False}
AWAY = ApiError("no answer")
AGAIN = {**EMPTY, "drain": False, "empty": False}


class Played:
    """An API that gives these answers one after the other, the last for ever; seconds pass when it is told."""

    def __init__(self, *answers: Any) -> None:
        self._answers = list(answers)
        self.now = 0.0
        self.looks = 0

    def call(self, method: str, path: str) -> Any:
        assert (method, path) == ("GET", "/fleet/upstreams/10.0.0.1%3A80")
        self.looks += 1
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, ApiError):
            raise answer
        return answer

    def pass_by(self, seconds: float) -> None:
        self.now += seconds

    def waited(self, seconds: float = 10.0) -> int:
        return Waiting(self, [MEMBER], seconds, lambda: self.now, self.pass_by).until_empty()


@pytest.mark.parametrize(
    ("answers", "looks"),
    [
        ((EMPTY,), 2),
        ((BUSY, BUSY, EMPTY), 4),
        ((EMPTY, BUSY, EMPTY), 4),  # a job was taken up by another instance
        ((EMPTY, AWAY, EMPTY), 4),
        ((AGAIN, EMPTY), 3),  # the instance that is asked has not followed yet
    ],
)
def test_it_ends_when_two_looks_in_a_row_find_nothing(answers: tuple[Any, ...], looks: int) -> None:
    played = Played(*answers)
    assert (played.waited(), played.looks) == (0, looks)


def test_it_ends_with_1_when_the_time_is_over(capsys: pytest.CaptureFixture[str]) -> None:
    told = {**BUSY, "inflight": 7, "elsewhere": 4, "unknown": ["gw-3"], "unaware": ["two"]}
    played = Played(told)
    assert (played.waited(3.5), played.looks) == (1, 5)
    words = (
        "7 in flight in the fleet (1 at one, 2 at two, 4 at none of the instances); not known of gw-3; "
        "not yet followed by two"
    )
    out, err = capsys.readouterr()
    assert out == f"{MEMBER}: {words}\n"
    assert err == f"slb: the time is over: {MEMBER}: {words}\n"


def test_what_the_ledger_does_not_say_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert Played({**EMPTY, "elsewhere": None, "empty": False}).waited(1.0) == 1
    assert "Redis does not say what others hold" in capsys.readouterr().err


def test_a_refusal_and_the_end_of_the_drain_end_it() -> None:
    with pytest.raises(ApiError, match="takes requests again"):
        Played(BUSY, AGAIN).waited()
    with pytest.raises(ApiError, match="nobody names it"):
        Played(BUSY, ApiError("nobody names it", "no_route")).waited()
