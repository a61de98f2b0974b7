"""What a GPU's answer means for a job, and what becomes of the job."""

from typing import Any

import orjson
import pytest
from pydantic import ValidationError

from slb.job import Claimed, ModelConfig
from slb.jobs.verdict import MOST_PROGRESS, Move, Verdict, move_of, poll_verdict_of, retry_delay, verdict_of

SYNC = ModelConfig()
ASYNC = ModelConfig(model_type="async", poll_endpoint_template="/status/{id}")


def answered(status: int, answer: object, config: ModelConfig = SYNC) -> Verdict:
    return verdict_of(status, orjson.dumps(answer), config)


def polled(answer: object, status: int = 200) -> Verdict:
    return poll_verdict_of(status, orjson.dumps(answer), ASYNC)


@pytest.mark.parametrize("word", ["success", "completed", "done", "COMPLETED", "succeeded", "SUCCESS"])
def test_the_result_is_what_stands_under_its_name(word: str) -> None:
    answer = {"status": word, "result": {"url": "x"}}
    assert answered(200, answer) == polled(answer) == Verdict("done", b'{"url":"x"}')


@pytest.mark.parametrize(
    ("of", "words"),
    [
        ("RunPod", ["IN_QUEUE", "IN_PROGRESS", "RUNNING"]),
        ("Replicate and Cog", ["starting", "processing"]),
        ("Modal, Celery and servers of one's own", ["PENDING", "loading", "In Progress", "queued"]),
    ],
)
def test_in_a_poll_words_of_what_runs_go_on(of: str, words: list[str]) -> None:
    assert {polled({"status": word}) for word in words} == {Verdict("processing")}, of


@pytest.mark.parametrize(
    ("answer", "word"),
    [([], ""), (None, ""), ({"progress": 0.3}, ""), ({"status": 7}, ""), ({"status": "Warming up"}, "warming_up")],
)
def test_in_a_poll_what_has_no_word_or_another_one_goes_on_and_is_told(answer: object, word: str) -> None:
    assert (polled(answer).kind, polled(answer).new_word) == ("processing", word)


@pytest.mark.parametrize(
    "word",
    ["FAILED", "TIMED_OUT", "CANCELLED", "canceled", "aborted", "failure", "TERMINATED", "timeout", "Timed-out"],
)
def test_in_any_answer_words_of_failure_are_a_failed_attempt(word: str) -> None:
    answer = {"status": word, "error": "CUDA OOM"}
    assert polled(answer) == answered(200, answer) == Verdict("failed", error="CUDA OOM")


def test_an_end_without_a_result_is_all_of_the_answer_as_it_came() -> None:
    body = b'{"status": "COMPLETED", "output": {"seed": 36893488147419103232}}'
    assert poll_verdict_of(200, body, ASYNC) == verdict_of(200, body, SYNC) == Verdict("done", body)


@pytest.mark.parametrize(
    ("answer", "progress"),
    [
        ({"status": "IN_PROGRESS", "progress": 0.4}, {"progress": 0.4}),
        ({"progress": {"step": 3}, "output": ["a", "b"]}, {"progress": {"step": 3}, "output": ["a", "b"]}),
        ({"status": "running", "result": "so far"}, {"output": "so far"}),
        ({"progress": 0, "output": "x" * MOST_PROGRESS}, {"progress": 0}),
        ({"progress": "x" * MOST_PROGRESS}, None),
        ({"status": "running", "progress": None}, None),
        ([0.4], None),
    ],
)
def test_progress_and_what_was_made_so_far_are_kept_within_bounds(answer: object, progress: object) -> None:
    kept = polled(answer).progress
    assert (orjson.loads(kept) if kept else None) == progress


def test_progress_that_is_nested_too_deep_to_be_written_is_left_out() -> None:
    body = b'{"progress":1,"output":' + b"[" * 300 + b"]" * 300 + b"}"
    assert poll_verdict_of(200, body, ASYNC).progress == b'{"progress":1}'


@pytest.mark.parametrize(
    "answer",
    [{"choices": [1]}, [1], "text", None, {"status": "success", "other": 1}, {"status": "fine", "result": 1}],
)
def test_any_other_json_is_the_result_itself(answer: object) -> None:
    assert answered(201, answer) == Verdict("done", orjson.dumps(answer))


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (503, "busy"),
        (429, "busy"),
        (529, "busy"),
        (500, "failed"),
        (502, "failed"),
        (408, "failed"),
        (400, "hopeless"),
        (413, "hopeless"),
        (415, "hopeless"),
        (422, "hopeless"),
        (401, "failed"),
        (404, "failed"),
        (405, "failed"),
        (409, "failed"),
        (421, "failed"),
        (302, "failed"),
    ],
)
def test_a_status_says_whether_it_was_tried_and_whether_another_attempt_may_succeed(status: int, kind: str) -> None:
    assert answered(status, {"error": "x"}).kind == kind


def test_which_statuses_are_the_payloads_fault_and_which_say_that_it_is_busy_are_the_models_to_set() -> None:
    config = ModelConfig(hopeless_statuses=(404,), busy_statuses=(409,))
    kinds = {status: answered(status, {}, config).kind for status in (404, 409, 400, 503)}
    assert kinds == {404: "hopeless", 409: "busy", 400: "failed", 503: "failed"}
    assert poll_verdict_of(409, b"", config).kind == "busy"


def test_a_status_is_not_of_both_kinds_and_one_that_is_no_refusal_of_neither() -> None:
    with pytest.raises(ValidationError, match="409 is in busy_statuses too"):
        ModelConfig(hopeless_statuses=(400, 409), busy_statuses=(409,))
    with pytest.raises(ValidationError):
        ModelConfig(busy_statuses=(200,))


def test_another_status_below_500_is_that_gpus_own_fault() -> None:
    own = [status for status in (302, 401, 404, 500, 502, 400, 503) if answered(status, {}).is_its_own]
    assert own == [302, 401, 404]


@pytest.mark.parametrize("word", ["failed", "error"])
def test_an_answer_may_say_that_it_failed_and_why(word: str) -> None:
    assert answered(200, {"status": word, "error": "out of memory"}) == Verdict("failed", error="out of memory")
    assert answered(200, {"status": word, "detail": {"code": 7}}).error == '{"code":7}'


def test_what_is_no_json_has_failed_and_is_shown_in_part() -> None:
    verdict = verdict_of(200, b"<html>" + b"x" * 5000, SYNC)
    assert verdict.kind == "failed"
    assert verdict.error.startswith("its answer is not JSON: <html>xxx")
    assert len(verdict.error) < 600


def test_an_async_model_answers_with_the_id_that_it_is_asked_by() -> None:
    assert answered(202, {"status": "processing", "job_id": 7}, ASYNC) == Verdict("processing", remote="7")
    longest = "x" * 256
    assert answered(202, {"status": "processing", "id": longest}, ASYNC).remote == longest
    named = ASYNC.model_copy(update={"id_field": "task"})
    assert answered(200, {"status": "queued", "task": "t", "id": "no"}, named) == Verdict("processing", remote="t")
    assert answered(200, {"status": "queued"}, named).kind == "refused"
    assert answered(200, {"status": "processing", "job_id": "x"}, SYNC).kind == "refused"


@pytest.mark.parametrize(
    ("status", "answer"),
    [(200, {"id": "x", "status": "IN_QUEUE"}), (202, {"id": "x"}), (201, {"id": "x", "status": "new"})],
)
def test_an_async_model_is_asked_where_its_answer_is_no_end(status: int, answer: object) -> None:
    verdict = answered(status, answer, ASYNC)
    assert (verdict.kind, verdict.remote) == ("processing", "x")
    reports = ASYNC.model_copy(update={"poll_endpoint_template": None})
    assert answered(200, {"status": "new"}, reports).remote == "-"
    assert answered(200, {"status": "new"}, ASYNC).kind == "refused"


def test_an_async_model_may_answer_the_result() -> None:
    for answer in ({"id": "x", "choices": [1]}, [1], {"status": "done", "id": "x"}):
        assert answered(200, answer, ASYNC) == Verdict("done", orjson.dumps(answer))


@pytest.mark.parametrize(
    ("verdict", "failures", "move"),
    [
        (Verdict("done", b"1"), 9, Move("complete", b"1")),
        (Verdict("busy", error="503"), 9, Move("back", b"503")),
        (Verdict("busy", error="503", asks=0.0), 9, Move("busy", b"503", 2.0)),
        (Verdict("busy", error="503", asks=60.0), 9, Move("put_off", b"503", 60.0)),
        (Verdict("hopeless", error="400"), 0, Move("fail", b"400")),
        (Verdict("refused", error="too long"), 0, Move("give_up", b"too long")),
        (Verdict("failed", error="500"), 1, Move("retry", b"500", 2.0)),
        (Verdict("failed", error="500"), 2, Move("give_up", b"500")),
    ],
)
def test_what_becomes_of_the_job(verdict: Verdict, failures: int, move: Move) -> None:
    job = Claimed("flux", "job", "1.1", 1, failures, "", "", "")
    assert move_of(verdict, ModelConfig(max_retries=2), job, 0.0, left_alone=1.0) == move


def test_a_job_that_gpus_are_busy_for_waits_longer_each_time_and_ends_where_that_is_too_often() -> None:
    config, busy = ModelConfig(max_busy_answers=3), Verdict("busy", error="503", asks=0.0)
    job = Claimed("flux", "job", "1.1", 1, 0, "", "", "")
    moves = [move_of(busy, config, job._replace(busy=times), 0.0) for times in range(4)]
    assert [each.seconds for each in moves] == [1.0, 2.0, 4.0, 0.0]
    end = b"GPUs were busy for it 3 times while they took others: 503"
    assert [each.name for each in moves] == ["busy", "put_off", "put_off", "give_up"]
    assert moves[-1].text == end
    assert move_of(busy, config, job._replace(busy=3), 0.0, "small") == Move("fall", end, on="small")


def test_retries_wait_twice_as_long_each_time_up_to_a_bound_and_not_all_alike() -> None:
    config = ModelConfig(retry_backoff=1.0, longest_backoff=30.0)
    assert [retry_delay(config, failures, 0.0) for failures in range(7)] == [1, 2, 4, 8, 16, 30, 30]
    assert retry_delay(config, 10_000, 1.0) == pytest.approx(33.0)
    assert retry_delay(config, 0, -1.0) == pytest.approx(0.9)


@pytest.mark.parametrize("status", [{"code": 1}, [1], 7, True])
def test_a_status_that_is_no_word_says_nothing(status: object) -> None:
    assert answered(200, {"status": status}) == Verdict("done", orjson.dumps({"status": status}))


def test_a_result_that_cannot_be_written_again_is_refused() -> None:
    body = b'{"status":"success","result":' + b"[" * 500 + b"]" * 500 + b"}"
    assert verdict_of(200, body, SYNC).kind == "refused"


@pytest.mark.parametrize("is_known", [False, True])
def test_an_error_that_is_nested_too_deep_to_be_written_is_a_failure_of_the_gpus(is_known: bool) -> None:
    body = b'{"status":"error","error":' + b"[" * 300 + b"]" * 300 + b"}"
    verdict = poll_verdict_of(200, body, ASYNC) if is_known else verdict_of(200, body, ASYNC)
    assert (verdict.kind, verdict.error[:26]) == ("failed", "it answered that it failed")


@pytest.mark.parametrize("id_", [".", "..", "x" * 257, ["x"], {"a": 1}, 1.5])
def test_an_id_of_the_gpu_that_no_poll_could_name_is_refused(id_: Any) -> None:
    assert answered(202, {"status": "processing", "job_id": id_}, ASYNC).kind == "refused"


def test_an_integer_of_any_size_stays_one() -> None:
    body = b'{"status": "success", "result": {"id": %d, "of": [%d]}}' % (2**70, 2**53 + 1)
    assert verdict_of(200, body, ModelConfig()).result == b'{"id":%d,"of":[%d]}' % (2**70, 2**53 + 1)
