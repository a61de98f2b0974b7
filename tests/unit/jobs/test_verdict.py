"""What a GPU's answer means for a job, and what becomes of the job."""

from typing import Any

import orjson
import pytest

from slb.job import ModelConfig
from slb.jobs.verdict import Move, Verdict, move_of, retry_delay, verdict_of

SYNC = ModelConfig()
ASYNC = ModelConfig(model_type="async", poll_endpoint_template="/status/{id}")


def answered(status: int, answer: object, config: ModelConfig = SYNC, is_known: bool = False) -> Verdict:
    return verdict_of(status, orjson.dumps(answer), config, is_known)


@pytest.mark.parametrize("word", ["success", "completed", "done"])
def test_the_result_is_what_stands_under_its_name(word: str) -> None:
    assert answered(200, {"status": word, "result": {"url": "x"}}) == Verdict("done", b'{"url":"x"}')


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
        (500, "failed"),
        (502, "failed"),
        (408, "failed"),
        (400, "hopeless"),
        (302, "failed"),
    ],
)
def test_a_status_says_whether_it_was_tried_and_whether_another_attempt_may_succeed(status: int, kind: str) -> None:
    assert answered(status, {"error": "x"}).kind == kind


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


def test_once_it_is_known_it_need_not_name_the_id_again() -> None:
    assert answered(200, {"status": "running"}, ASYNC, is_known=True) == Verdict("processing")
    assert answered(404, {}, ASYNC, is_known=True).kind == "unknown"


@pytest.mark.parametrize(
    ("verdict", "failures", "move"),
    [
        (Verdict("done", b"1"), 9, Move("complete", b"1")),
        (Verdict("busy", error="503"), 9, Move("back", b"503")),
        (Verdict("hopeless", error="400"), 0, Move("fail", b"400")),
        (Verdict("refused", error="too long"), 0, Move("give_up", b"too long")),
        (Verdict("failed", error="500"), 1, Move("retry", b"500", 2.0)),
        (Verdict("failed", error="500"), 2, Move("give_up", b"500")),
    ],
)
def test_what_becomes_of_the_job(verdict: Verdict, failures: int, move: Move) -> None:
    assert move_of(verdict, ModelConfig(max_retries=2), failures, 0.0) == move


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
    verdict = verdict_of(200, body, ASYNC, is_known)
    assert (verdict.kind, verdict.error[:26]) == ("failed", "it answered that it failed")


@pytest.mark.parametrize("id_", [".", "..", "x" * 257, ["x"], {"a": 1}, 1.5])
def test_an_id_of_the_gpu_that_no_poll_could_name_is_refused(id_: Any) -> None:
    assert answered(202, {"status": "processing", "job_id": id_}, ASYNC).kind == "refused"
