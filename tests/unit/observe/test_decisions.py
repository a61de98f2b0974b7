"""What is remembered of the last requests."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

from slb.balance.asking import Scores
from slb.observe.decisions import NOTHING_FOUND, Decisions, Plain, Queueing, Snapshot

PLAIN: Plain = (b"abc", "/p", "10.0.0.1:80", 200, 10.0, 10.1, 10.2, 10.5, NOTHING_FOUND.ref)
NOT_KEPT: dict[str, Any] = {
    "found_after": None,
    "scores_after": None,
    "policy": "",
    "by": "",
    "panic": False,
    "members": [],
    "left_off": 0,
}


class Told:
    """What a snapshot has."""

    def told(self, chosen: str, tried: Sequence[str], held: Mapping[str, int] | None) -> Mapping[str, Any]:
        members = [chosen, *tried, *([] if held is None else [held])]
        return {"policy": "p2c", "by": "", "panic": False, "members": members, "left_off": 0}


def snapshot(size: int = 10) -> Snapshot:
    return Snapshot(Told(), 9.5, size, 1.0)


def of(id_: bytes, found: Snapshot = NOTHING_FOUND) -> Plain:
    return (id_, *PLAIN[1:-1], found.ref)


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
        **NOT_KEPT,
    }
    assert decisions.find("abd") == []


def test_what_there_is_to_tell_is_told() -> None:
    decisions = Decisions(lambda: 20.0)
    queueing = Queueing("redis", 3, 1.5)
    decisions.note(PLAIN, NOTHING_FOUND, "queue_timeout", "in vain", ("a: refused",), ("a",), queueing)
    decisions.refused.append((b"abc", "", 404, "no_route", "no route takes this", 19.0))
    queued, refused = decisions.find("abc")
    assert (queued["reason"], queued["failed"], queued["decided_by"]) == ("queue_timeout", ["a: refused"], "redis")
    assert (queued["position"], queued["queued"]) == (3, 1.5)
    assert (refused["status"], refused["reason"], refused["decided_by"]) == (404, "no_route", "refused")
    assert (refused["sent_after"], refused["found_after"]) == (None, None)


def test_what_a_request_found_is_told_with_it() -> None:
    decisions = Decisions(lambda: 20.0)
    found = snapshot()
    decisions.plain.append(of(b"plain", found))
    decisions.note(of(b"noted", found), found, "", "", ("b: refused",), ("b",))
    (plain,), (noted,) = decisions.find("plain"), decisions.find("noted")
    assert (plain["found_after"], plain["policy"], plain["members"]) == (-0.5, "p2c", ["10.0.0.1:80"])
    assert noted["members"] == ["10.0.0.1:80", "b"]


def test_what_redis_found_is_told_with_the_request_and_kept_as_long_as_what_that_found() -> None:
    decisions, found = Decisions(lambda: 20.0), snapshot()
    for id_, position in ((b"granted", None), (b"queued", 0)):
        scores = Scores({"10.0.0.1:80": 2}, 10.25)
        decisions.note(of(id_, found), found, queueing=Queueing("redis", position, 0.0, scores.ref))
    (told,) = decisions.find("granted")
    assert (told["scores_after"], told["members"]) == (0.25, ["10.0.0.1:80", {"10.0.0.1:80": 2}])
    del scores
    for _ in range(10):
        more = Scores({str(number): 1 for number in range(10_000)}, 11.0)
        decisions.note(of(b"more", found), found, queueing=Queueing("redis", None, 0.0, more.ref))
    assert [decisions.find(each)[0]["scores_after"] for each in ("granted", "queued")] == [None, 0.25]


def test_what_those_found_that_have_something_to_tell_is_kept_the_longest() -> None:
    decisions = Decisions(lambda: 20.0)
    for id_, reason in ((b"plain", ""), (b"noted", "queue_timeout")):
        found = snapshot()
        decisions.keep(found)
        decisions.note(of(id_, found), found, reason)
    del found
    for _ in range(200):
        decisions.keep(snapshot(1000))
    assert [decisions.find(each)[0]["found_after"] for each in ("plain", "noted")] == [None, -0.5]
    for _ in range(200):
        found = snapshot(1000)
        decisions.note(of(b"more", found), found, "queue_timeout")
    (noted,) = decisions.find("noted")
    assert noted.items() >= NOT_KEPT.items(), "the request is known longer than what it found"


def test_what_all_found_is_bounded() -> None:
    decisions = Decisions(lambda: 20.0)
    made = []
    for _ in range(2000):
        found = snapshot(100)
        made.append(found.ref)
        decisions.keep(found)
        decisions.note(of(b"more", found), found, "queue_timeout")
        decisions.note(of(b"more", found), found, "queue_timeout")
    del found
    assert 0 < sum(each() is not None for each in made) * 100 <= 50_000


def test_a_request_is_told_of_for_its_failure_for_its_wait_or_for_its_slowness() -> None:
    decisions = Decisions(lambda: 20.0)
    found = snapshot()
    found.slow = 0.4  # it took 0.5
    fine = snapshot()
    decisions.note(of(b"slow", found), found)
    decisions.note((b"failed", "/p", "a", 500, *PLAIN[4:]), fine)
    decisions.note(of(b"waited", fine), fine, queueing=Queueing("redis", 0, 0.1))
    decisions.note(of(b"granted", fine), fine, queueing=Queueing("redis", None, 0.0))
    for number in range(10_000):
        decisions.note(of(b"%d" % number, fine), fine, queueing=Queueing("here", None, 0.0))
    assert [len(decisions.find(each)) for each in ("slow", "failed", "waited", "granted")] == [1, 1, 1, 0]
    assert decisions.find("9999")[0]["decided_by"] == "here"


def test_a_flood_of_one_kind_displaces_nothing_of_the_others() -> None:
    decisions = Decisions(lambda: 20.0)
    decisions.note(PLAIN, NOTHING_FOUND, "queue_timeout", "in vain")
    for number in range(20_000):
        decisions.plain.append(of(b"%d" % number))
        decisions.refused.append((b"abc", "", 404, "no_route", "", 1.0))
    assert len(decisions.plain) + len(decisions.refused) < 12_000
    assert len(decisions.find("abc")) == 10, "an id that is used for all does not fill the answer"
    assert decisions.find("abc")[-1]["reason"] == "queue_timeout"
    assert decisions.find("1") == []


def test_an_id_that_is_no_text_is_found_as_it_is_shown() -> None:
    decisions = Decisions(lambda: 20.0)
    decisions.plain.append(of(b"\xff\xfe"))
    assert decisions.find("\xff\xfe".encode("latin-1").decode("utf-8", "surrogateescape"))
