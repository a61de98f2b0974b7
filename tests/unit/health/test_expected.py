"""What the body of an answer has to say: values in JSON, and texts that come in pieces."""

import pytest

from slb.health.expected import body_fault, text_found
from slb.model import HealthCheck

CHECK = HealthCheck("/h", 1.0, 1, 1, 1.0)

ANSWER = b"""{"ok": true, "load": 0.5, "queue": 3, "note": null, "name": "a=b", "2": "two", "": 1,
    "models": [{"state": "ready"}, {"state": "loading"}], "deep": {"er": {"est": "here"}}}"""


@pytest.mark.parametrize(
    "condition",
    [
        "ok=true",
        "load=0.5",
        "queue=3",
        "note=null",
        "name=a=b",
        "models.0.state=ready",
        "deep.er.est=here",
        "2=two",
    ],
)
def test_a_value_is_found_by_names_and_numbers_and_compared_as_json_writes_it(condition: str) -> None:
    assert body_fault(CHECK._replace(json=condition), ANSWER) is None


@pytest.mark.parametrize(
    ("condition", "reason"),
    [
        ("ok=True", "ok is 'true', not 'True'"),
        ("queue=4", "queue is '3', not '4'"),
        ("models.1.state=ready", "models.1.state is 'loading', not 'ready'"),
        ("deep.er=here", """deep.er is '{"est":"here"}', not 'here'"""),
        ("models.2.state=ready", "no models.2.state in the answer"),
        ("models.-1.state=loading", "no models.-1.state in the answer"),
        ("models.\u00b2.state=x", "no models.\u00b2.state in the answer"),
        ("models.state=ready", "no models.state in the answer"),
        ("ok.x=1", "no ok.x in the answer"),
        ("none=null", "no none in the answer"),
    ],
)
def test_a_value_that_is_another_or_is_missing_is_told(condition: str, reason: str) -> None:
    assert str(body_fault(CHECK._replace(json=condition), ANSWER)).startswith(reason)


def test_a_reason_has_no_more_than_a_line_whatever_the_answer_says() -> None:
    for body in (b"\xff\x00\r\n\x1b[2J", "\u2028\u202e".encode(), b"\x80" * 70_000):
        for check in (CHECK._replace(body="ready"), CHECK._replace(json="status=ok")):
            reason = body_fault(check, body[:60_000])
            assert reason
            assert reason.isprintable()
            assert len(reason) < 1000


def test_where_both_are_asked_for_both_have_to_be_there() -> None:
    check = CHECK._replace(body="queue", json="ok=true")
    assert body_fault(check, ANSWER) is None
    assert body_fault(check._replace(body="nothing"), ANSWER)
    assert body_fault(check._replace(json="ok=false"), ANSWER)


def test_a_text_in_pieces_is_found_with_its_last_one() -> None:
    found = text_found("is ready")
    body = bytearray()
    seen: list[bool] = []
    for each in b"it is ready, ":
        body.append(each)
        seen.append(found(body, len(body) - 1))
    assert seen.index(True) == len("it is ready") - 1
