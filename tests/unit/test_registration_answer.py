"""What each answer to a registration means."""

import json
from typing import Any

import pytest

from slb.registration import Kind, judged

URL = "http://slb:8081/register"
NAMED = {"path": "/p", "target": "10.0.0.1:80"}
NO_SLB = f"{URL} is not the API of an slb: it answered"


def answer(**more: Any) -> str:
    """The start of what an slb answers."""
    return json.dumps({**NAMED, **more})


@pytest.mark.parametrize(
    ("method", "status", "text", "kind", "why"),
    [
        ("POST", 200, answer(added=True), Kind.CHANGED, ""),
        ("POST", 200, answer(added=False), Kind.UNCHANGED, ""),
        ("DELETE", 200, answer(removed=True), Kind.CHANGED, ""),
        ("DELETE", 200, answer(removed=False), Kind.UNCHANGED, ""),
        ("DELETE", 200, answer(added=True), Kind.REFUSED, f"{NO_SLB} 200 {answer(added=True)}"),
        ("POST", 200, answer(added=1), Kind.REFUSED, f"{NO_SLB} 200 {answer(added=1)}"),
        ("POST", 200, '{"added": true}', Kind.REFUSED, f'{NO_SLB} 200 {{"added": true}}'),
        ("POST", 301, "", Kind.REFUSED, f"{NO_SLB} 301 "),
        ("POST", 200, "[" * 5000, Kind.REFUSED, f"{NO_SLB} 200 {'[' * 200}"),
        ("POST", 400, "", Kind.REFUSED, f"{URL} answered 400 "),
        ("POST", 403, "no \n way", Kind.REFUSED, f"{URL} answered 403 no way"),
        ("POST", 408, "", Kind.FAILED, f"{URL} answered 408 "),
        ("POST", 429, "", Kind.FAILED, f"{URL} answered 429 "),
        (
            *("POST", 503, '{"error": "redis", "detail": "gone", "request_id": "1"}'),
            *(Kind.FAILED, f"{URL} answered 503 redis: gone"),
        ),
    ],
)
def test_an_answer_is_taken_refused_or_to_be_tried_again(
    method: str, status: int, text: str, kind: Kind, why: str
) -> None:
    found = judged(URL, method, NAMED, status, text)
    assert (found.kind, found.why) == (kind, why)
    assert found.is_taken is (kind in (Kind.CHANGED, Kind.UNCHANGED))
