"""What is remembered of the last requests."""

import time

from slb.observe.decisions import Decisions, Queueing

PLAIN = (b"abc", "/p", "10.0.0.1:80", 200, 10.0, 10.1, 10.2, 10.5)


def test_a_request_is_found_by_its_id() -> None:
    decisions = Decisions(lambda: 20.0)
    decisions.plain.append(PLAIN)
    (found,) = decisions.find("abc")
    assert abs(found.pop("time") - (time.time() - 10.0)) < 5.0
    assert found == {
        "route": "/p",
        "upstream": "10.0.0.1:80",
        "status": 200,
        "reason": "",
        "detail": "",
        "decided_by": "policy",
        "failed": [],
        "position": None,
        "queued": 0.0,
        "sent_after": 0.1,
        "first_byte_after": 0.2,
        "duration": 0.5,
    }
    assert decisions.find("abd") == []


def test_what_there_is_to_tell_is_told() -> None:
    decisions = Decisions(lambda: 20.0)
    decisions.noted.append((PLAIN, "queue_timeout", "in vain", ("a: refused",), Queueing("redis", 3, 1.5)))
    decisions.refused.append((b"abc", "", 404, "no_route", "no route takes this", 19.0))
    queued, refused = decisions.find("abc")
    assert (queued["reason"], queued["failed"], queued["decided_by"]) == ("queue_timeout", ["a: refused"], "redis")
    assert (queued["position"], queued["queued"]) == (3, 1.5)
    assert (refused["status"], refused["reason"], refused["decided_by"]) == (404, "no_route", "refused")
    assert refused["sent_after"] is None


def test_a_flood_of_one_kind_displaces_nothing_of_the_others() -> None:
    decisions = Decisions(lambda: 20.0)
    decisions.noted.append((PLAIN, "queue_timeout", "in vain", (), None))
    for number in range(20_000):
        decisions.plain.append((b"%d" % number, "/p", "a", 200, 1.0, 1.0, 1.0, 1.0))
        decisions.refused.append((b"abc", "", 404, "no_route", "", 1.0))
    assert len(decisions.plain) + len(decisions.refused) < 12_000
    assert len(decisions.find("abc")) == 10, "an id that is used for all does not fill the answer"
    assert decisions.find("abc")[-1]["reason"] == "queue_timeout"
    assert decisions.find("1") == []


def test_an_id_that_is_no_text_is_found_as_it_is_shown() -> None:
    decisions = Decisions(lambda: 20.0)
    decisions.plain.append((b"\xff\xfe", *PLAIN[1:]))
    assert decisions.find("\xff\xfe".encode("latin-1").decode("utf-8", "surrogateescape"))
