"""`slb jobs`: what it sends, and what it prints of the answers."""

import json
from pathlib import Path
from typing import Any

import pytest

from slb.cli.job_tables import change_of, pairs_of
from tests.unit.cli.conftest import Server, Slb

SUBMITTED = {"job_id": "one", "status": "queued", "position": 0, "is_new": True}
JOB = {
    "job_id": "one",
    "model": "flux",
    "status": "queued",
    "priority": "normal",
    "attempts": 0,
    "failures": 0,
    "submitted_at": 1_700_000_000.0,
    "position": 3,
}


def test_a_job_is_submitted_with_what_was_typed_and_with_nothing_else(slb: Slb, server: Server) -> None:
    server.status, server.answer = 202, SUBMITTED
    assert slb("jobs", "submit", "flux", '{"prompt": "x"}') == (0, "one: queued\n", "")
    words = ("--id", "one", "--priority", "high", "--deadline", "2m", "--max-retries", "3", "--metadata", "[7]")
    slb("jobs", "submit", "flux", "1", *words, "--callback-url", "http://h/x")
    given = {"job_id": "one", "priority": "high", "deadline": 120.0, "max_retries": 3, "metadata": [7]}
    assert server.asked == ["POST /queue/submit"] * 2
    assert server.sent == [
        {"model": "flux", "payload": {"prompt": "x"}},
        {"model": "flux", "payload": 1, **given, "callback_url": "http://h/x"},
    ]


@pytest.mark.parametrize(
    ("answer", "line"),
    [
        ({"position": 2}, "one: queued, 2 of its class before it\n"),
        ({"is_new": False, "status": "processing", "position": -1}, "one: was there already, processing\n"),
    ],
)
def test_what_became_of_a_submitted_job_is_one_line(
    slb: Slb, server: Server, answer: dict[str, Any], line: str
) -> None:
    server.status, server.answer = 202, {**SUBMITTED, **answer}
    assert slb("jobs", "submit", "flux", "1")[1] == line


def test_a_payload_may_stand_in_a_file(slb: Slb, server: Server, tmp_path: Path) -> None:
    server.status, server.answer = 202, SUBMITTED
    (tmp_path / "job.json").write_text('{"n": 1}')
    assert slb("jobs", "submit", "flux", f"@{tmp_path}/job.json")[0] == 0
    assert server.sent[0]["payload"] == {"n": 1}


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        (("submit", "flux", "{"), "PAYLOAD is no JSON: "),
        (("submit", "flux", "@/nowhere"), "/nowhere cannot be read: No such file"),
        (("submit", "flux", "1", "--metadata", "{"), "--metadata is no JSON: "),
        (("submit", "flux", "1", "--deadline", "30"), "is 30s meant?"),
        (("watch",), "a job's id, or --model"),
        (("dlq", "retry"), "named by ids, or by --all"),
        (("dlq", "retry", "one", "--all"), "named by ids, or by --all"),
        (("dlq", "retry", "one", "--error", "x"), "--error goes with --all"),
    ],
)
def test_what_cannot_be_meant_is_not_sent(slb: Slb, server: Server, words: tuple[str, ...], fault: str) -> None:
    code, out, err = slb("jobs", *words)
    assert (code, out, server.asked) == (2, "", [])
    assert fault in err


def test_a_job_is_shown_with_all_that_is_known_of_it(slb: Slb, server: Server) -> None:
    server.answer = {**JOB, "result": {"url": "x"}}
    code, out, _ = slb("jobs", "show", "a/b", "--model", "flux")
    assert (code, server.asked) == (0, ["GET /queue/jobs/a%2Fb?model=flux"])
    shown = dict(line.split(maxsplit=1) for line in out.splitlines())
    assert (shown["status"], shown["position"], shown["result"]) == ("queued", "3", '{"url":"x"}')
    assert shown["submitted_at"] == "2023-11-14 22:13:20+00:00"
    assert json.loads(slb("jobs", "show", "one", "--json")[1]) == server.answer


def test_a_page_of_jobs_ends_with_where_the_next_one_begins(slb: Slb, server: Server) -> None:
    server.answer = {"jobs": [{**JOB, "error": "out of memory"}], "cursor": "200"}
    _, out, _ = slb("jobs", "list", "flux", "--status", "retrying", "--cursor", "0")
    assert server.asked == ["GET /queue/jobs?model=flux&status=retrying&cursor=0"]
    assert "out of memory" in out
    assert out.endswith("There may be more: --cursor 200\n")
    server.answer = {"jobs": [], "cursor": None}
    assert slb("jobs", "list", "flux")[1] == "No job of flux is queued.\n"
    assert slb("jobs", "list")[1] == "No job is queued.\n"
    server.answer = {"jobs": [{**JOB, "model": "flux/dev"}], "cursor": None}
    assert "flux/dev" in slb("jobs", "list", "--status", "queued")[1]
    assert server.asked[-2:] == ["GET /queue/jobs?status=queued"] * 2


def test_cancelled_jobs_are_named_with_what_they_were(slb: Slb, server: Server) -> None:
    server.answer = {"job_id": "one", "status": "cancelled", "was": "processing"}
    assert slb("jobs", "cancel", "one", "two")[1] == (
        "one: cancelled, it was processing\ntwo: cancelled, it was processing\n"
    )
    assert server.asked == ["DELETE /queue/jobs/one", "DELETE /queue/jobs/two"]


@pytest.mark.parametrize(("word", "paused"), [("pause", True), ("resume", False)])
def test_a_model_is_paused_with_all_else_as_it_was(slb: Slb, server: Server, word: str, paused: bool) -> None:
    server.answer = {"model": "a/b", "config": {"max_retries": 3, "paused": paused}}
    code, out, _ = slb("jobs", word, "a/b")
    assert (code, server.asked, server.sent) == (0, ["PATCH /admin/model-configs/a/b"], [{"paused": paused}])
    assert out == ("a/b: takes jobs, and begins none\n" if paused else "a/b: begins jobs\n")


def test_dead_jobs_are_listed_begun_again_and_deleted(slb: Slb, server: Server) -> None:
    server.answer = {"jobs": [{**JOB, "status": "dead_lettered"}], "cursor": None, "retried": 1}
    assert "dead_lettered" in slb("jobs", "dlq", "list", "flux", "--error", "out of")[1]
    assert slb("jobs", "dlq", "retry", "one", "--model", "flux")[1] == "one: begins again\n"
    server.answer = {"retried": 5}
    assert slb("jobs", "dlq", "retry", "--all", "--model", "flux", "--error", "x")[1] == "flux: 5 begin again\n"
    server.answer = {"job_id": "one", "removed": True}
    assert slb("jobs", "dlq", "delete", "one")[1] == "one: deleted\n"
    assert server.asked == [
        "GET /admin/dlq?model=flux&error=out+of",
        "POST /admin/dlq/one/retry?model=flux",
        "POST /admin/dlq/retry-all?model=flux&error=x",
        "DELETE /admin/dlq/one",
    ]


def test_without_a_model_dead_jobs_are_listed_with_theirs(slb: Slb, server: Server) -> None:
    server.answer = {"jobs": [{**JOB, "status": "dead_lettered", "model": "flux/dev"}], "cursor": "200:flux/dev"}
    out = slb("jobs", "dlq", "list")[1]
    assert "flux/dev" in out.splitlines()[-3]
    assert out.endswith("There may be more: --cursor 200:flux/dev\n")
    server.answer = {"jobs": [], "cursor": None}
    assert slb("jobs", "dlq", "list", "--cursor", "200:flux/dev")[1] == "No such job is dead.\n"
    assert server.asked == ["GET /admin/dlq", "GET /admin/dlq?cursor=200%3Aflux%2Fdev"]


def test_without_a_model_all_dead_jobs_of_all_models_begin_again(slb: Slb, server: Server) -> None:
    server.answer = {"retried": 2}
    assert slb("jobs", "dlq", "retry", "--all", "--error", "x")[1] == "all models: 2 begin again\n"
    assert server.asked == ["POST /admin/dlq/retry-all?error=x"]


def test_what_is_refused_is_one_line_and_exit_code_1(slb: Slb, server: Server) -> None:
    server.status, server.answer = 404, {"error": "unknown_job", "detail": "'one' is no job"}
    code, out, err = slb("jobs", "show", "one")
    assert (code, out) == (1, "")
    assert err == "slb: GET /queue/jobs/one: 404 unknown_job: 'one' is no job\n"


RUNNING = {"job_id": "one", "model": "flux", "status": "processing", "attempts": 1, "upstream": "10.0.0.1:80"}
DONE = {**RUNNING, "status": "completed", "result": 7}
DEAD = {**RUNNING, "status": "dead_lettered", "error": "out of memory"}


def test_how_far_a_job_has_come_is_told_with_its_state() -> None:
    job = {"status": "processing", "upstream": "10.0.0.1:80", "attempts": 1}
    assert change_of({**job, "progress": 0.4}) == "processing, at 10.0.0.1:80, attempt 1, progress 0.4"
    assert len(change_of({**job, "progress": "x\x1b" * 999})) < 150
    assert dict(pairs_of({"job_id": "one", "progress": {"step": 3}, "output": ["a"]})) == {
        "job_id": "one",
        "progress": '{"step":3}',
        "output": '["a"]',
    }


def test_a_job_is_watched_until_it_has_ended(slb: Slb, server: Server) -> None:
    server.events = [[{**JOB, "eta": 40.2}, RUNNING, DONE]]
    code, out, err = slb("jobs", "watch", "one")
    assert (code, err, server.asked) == (0, "", ["GET /queue/events?job_id=one"])
    assert [line.partition("  ")[2] for line in out.splitlines()] == [
        "one  queued, 3 of its class before it, about 40 s to go",
        "one  processing, at 10.0.0.1:80, attempt 1",
        "one  completed",
    ]


def test_one_that_did_not_complete_is_exit_code_1(slb: Slb, server: Server) -> None:
    server.events = [[DEAD]]
    code, out, _ = slb("jobs", "watch", "one", "--model", "flux", "--json")
    assert (code, json.loads(out)["error"]) == (1, "out of memory")


def test_where_the_stream_ends_too_soon_it_is_asked_for_again(
    slb: Slb, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("slb.cli.job_watch._PAUSE", 0.0)
    server.events = [[JOB], [JOB, DONE]]
    code, out, err = slb("jobs", "watch", "one")
    assert (code, len(out.splitlines())) == (0, 2)
    assert err == "slb: the stream of events has ended; asking again\n"


def test_a_job_that_is_not_known_any_more_ends_it(
    slb: Slb, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("slb.cli.job_watch._PAUSE", 0.0)
    server.events = [[JOB]]
    server.status, server.answer = 404, {"error": "unknown_job", "detail": "it is none"}
    code, _, err = slb("jobs", "watch", "one")
    assert code == 1
    assert "404 unknown_job" in err


def test_a_job_may_be_waited_for_and_is_shown_then(slb: Slb, server: Server) -> None:
    server.answer, server.events = {**SUBMITTED, **DONE}, [[JOB, DONE]]
    code, out, _ = slb("jobs", "submit", "flux", "1", "--wait", "--json")
    assert (code, json.loads(out)["result"]) == (0, 7)
    server.events = [[DEAD]]
    assert slb("jobs", "submit", "flux", "1", "--wait")[0] == 1
