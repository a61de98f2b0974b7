"""What is told of attempts that go on. Redis is a stand-in that is away."""

from random import Random
from types import SimpleNamespace
from typing import Any

from structlog.testing import capture_logs

from slb.errors import RedisUnavailable
from slb.job import Claimed
from slb.jobs.telling import Telling
from slb.jobs.verdict import Verdict
from slb.observe.jobs import JobCounts

JOB = Claimed("flux", "one", "1.1", 1, 0, "", "", "{}")


async def test_a_status_that_is_not_known_is_logged_once_a_model_and_of_very_many_a_few() -> None:
    counts = JobCounts()
    telling = Telling(SimpleNamespace(), SimpleNamespace(), counts, Random(1))  # type: ignore[arg-type]
    with capture_logs() as logs:
        for word in ("warming", "warming", None, "", "warming", *(f"word-{number}" for number in range(99))):
            await telling.heard(JOB, Verdict("processing", new_word=word))
        await telling.heard(JOB._replace(on="small"), Verdict("processing", new_word="warming"))
    told = [(each["event"], each["model"], each["status"]) for each in logs]
    assert told[:2] == [("job_status_unknown", "flux", word) for word in ("warming", "")]
    assert told[-1] == ("job_status_unknown", "small", "warming")
    assert len(told) == 17


async def test_how_far_an_attempt_has_come_is_not_kept_while_redis_is_away_and_it_goes_on() -> None:
    async def note_progress(job: Claimed, progress: bytes) -> None:
        noted.append(progress)
        raise RedisUnavailable("away")

    noted: list[bytes] = []
    lane: Any = SimpleNamespace(note_progress=note_progress)
    telling = Telling(lane, SimpleNamespace(), JobCounts(), Random(1))  # type: ignore[arg-type]
    await telling.heard(JOB, Verdict("processing", progress=b'{"progress":0.4}'))
    await telling.heard(JOB, Verdict("processing"))
    assert noted == [b'{"progress":0.4}']
