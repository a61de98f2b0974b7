"""What is kept of a job, and when two are the same."""

from dataclasses import replace
from typing import Any

import orjson
import pytest

from slb.job import JobRequest
from slb.jobs.submission import submission_of

JOB = JobRequest(model="flux", payload={"a": 1, "b": 2}, id="one")


@pytest.mark.parametrize("payload", [None, "", 0, [], {}, "text"])
def test_a_payload_is_kept_whatever_it_is(payload: Any) -> None:
    assert orjson.loads(submission_of(replace(JOB, payload=payload), "normal").written) == {"payload": payload}


def test_what_was_not_given_takes_no_room_and_what_was_is_kept() -> None:
    job = submission_of(replace(JOB, callback_url="http://x/", metadata=[1], max_retries=0, deadline=1.5), "high")
    assert orjson.loads(job.written).keys() == {"payload", "callback_url", "metadata", "max_retries"}
    assert (job.calls_back, job.deadline, job.priority) == (True, 1500, "high")


def test_the_same_job_has_the_same_digest_and_any_other_another() -> None:
    digest = submission_of(JOB, "normal").digest
    assert len(digest) == 32
    assert submission_of(replace(JOB, id="two", payload={"b": 2, "a": 1}), "normal").digest == digest
    others: list[dict[str, Any]] = [
        {"payload": 1},
        {"model": "zimg"},
        {"priority": "high"},
        {"deadline": 1.0},
        {"callback_url": "http://x"},
    ]
    for each in others:
        assert submission_of(replace(JOB, **each), "normal").digest != digest


def test_a_job_without_an_id_has_one_of_its_own() -> None:
    ids = {submission_of(replace(JOB, id=""), "normal").id for _ in range(10)}
    assert len(ids) == 10
    assert all(each.isalnum() for each in ids)
