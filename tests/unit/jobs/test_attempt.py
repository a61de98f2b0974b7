"""One attempt at a job whose GPU runs it on its own: the questions how it goes. The GPU is a list of answers."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import orjson
import pytest

from slb.balance.upstream import LiveUpstream
from slb.errors import UPSTREAM_CONNECT, Refused
from slb.job import Claimed, ModelConfig
from slb.jobs.attempt import follow_attempt, run_attempt
from slb.jobs.gpu_call import Answer, GpuRequest
from slb.jobs.verdict import Verdict
from slb.model import Upstream
from tests.support.virtual_time import in_virtual_time

CONFIG = ModelConfig(model_type="async", poll_endpoint_template="/status/{id}", poll_interval=0.01)
BEGUN = (200, {"status": "processing", "job_id": "r1"})
RUNS, DONE = (200, {"status": "running"}), (200, {"status": "done", "result": 7})
UNKNOWN: tuple[int, Any] = (404, {})
AWAY = (0, None)
UPSTREAM = LiveUpstream(Upstream.of("10.0.0.1:80"))


class Gpu:
    """Answers in turn; `calls`: what it was called with; `reports`: what it has told by itself, at each look."""

    def __init__(self, *answers: tuple[int, Any], reports: Sequence[str | None] = ()) -> None:
        self.answers = list(answers)
        self.reports = reports
        self.calls: list[tuple[str, Mapping[str, str]]] = []

    async def __call__(self, request: GpuRequest) -> Answer:
        self.calls.append((f"{request.method} {request.target}", request.headers))
        status, answer = self.answers.pop(0)
        if not status:
            raise Refused(UPSTREAM_CONNECT, "refused")
        return Answer(status, orjson.dumps(answer))


async def run(gpu: Gpu, config: ModelConfig = CONFIG, is_ours: bool = True) -> Verdict:
    async def note(job: Claimed, remote: str) -> bool:
        return is_ours

    async def reported(job: Claimed) -> str | None:
        return reports.pop(0) if reports else None

    reports = list(gpu.reports)
    job = Claimed("flux", "one", "3", 1, 0, "", "", '{"payload":1}')
    return await run_attempt(job, b"1", UPSTREAM, config, gpu, note, reported)


async def follow(gpu: Gpu, config: ModelConfig = CONFIG) -> Verdict:
    async def reported(job: Claimed) -> str | None:
        return None

    job = Claimed("flux", "one", "3", 1, 0, "r0", UPSTREAM.member, '{"payload":1}')
    return await follow_attempt(job, UPSTREAM, config, gpu, reported)


@pytest.mark.parametrize("between", [[RUNS], [(503, {})] * 9, [AWAY] * 4 + [RUNS] + [AWAY] * 4, [(500, {})] * 4])
async def test_a_gpu_that_is_busy_or_away_for_a_moment_is_asked_again(between: list[tuple[int, Any]]) -> None:
    assert await run(Gpu(BEGUN, *between, DONE)) == Verdict("done", b"7")


@pytest.mark.parametrize("answer", [AWAY, (500, {"detail": "broken"})])
async def test_one_that_does_not_say_how_it_goes_may_run_it_still(answer: tuple[int, Any]) -> None:
    verdict = await run(Gpu(BEGUN, *[answer] * 5))
    assert (verdict.kind, verdict.runs_on) == ("failed", True)


async def test_a_gpu_that_reports_that_a_job_goes_on_need_not_say_again_which() -> None:
    assert await run(Gpu(BEGUN, RUNS, DONE, reports=['{"status": "processing"}'])) == Verdict("done", b"7")


async def test_one_that_another_instance_has_taken_over_meanwhile_is_not_followed() -> None:
    gpu = Gpu(BEGUN)
    verdict = await run(gpu, is_ours=False)
    assert (verdict.kind, [call for call, _ in gpu.calls]) == ("failed", ["POST /generate"])
    assert "taken it over" in verdict.error


async def test_a_job_that_its_gpu_lost_by_a_restart_is_tried_again() -> None:
    verdict = await run(Gpu(BEGUN, RUNS, UNKNOWN))
    assert (verdict.kind, verdict.runs_on) == ("failed", False)


async def test_what_an_attempt_before_left_there_is_followed_from_now_on() -> None:
    gpu = Gpu(RUNS, DONE)
    assert await follow(gpu) == Verdict("done", b"7")
    assert [call for call, _ in gpu.calls] == ["GET /status/r0"] * 2
    later = CONFIG.model_copy(update={"poll_interval": 3600.0})
    assert await follow(Gpu(DONE), later) == Verdict("done", b"7")
    assert (await follow(Gpu(UNKNOWN))).kind == "unknown"


async def test_each_call_names_the_job_and_the_attempt() -> None:
    gpu = Gpu(BEGUN, DONE)
    await run(gpu)
    named = {"X-Source": "dispatcher", "X-Job-Id": "one", "X-Job-Attempt": "3", "Idempotency-Key": "one"}
    assert all(named.items() <= headers.items() for _, headers in gpu.calls)


async def test_a_gpu_that_reports_by_itself_need_not_be_asked() -> None:
    silent = CONFIG.model_copy(update={"poll_endpoint_template": None})
    reports = [None, '{"status": "running"}', '{"status": "success", "result": 8}']
    gpu = Gpu((200, {"status": "processing"}), reports=reports)
    assert await run(gpu, config=silent) == Verdict("done", b"8")
    assert [call for call, _ in gpu.calls] == ["POST /generate"]
    both = Gpu(BEGUN, RUNS, RUNS, reports=[None, '{"status": "failed", "error": "no memory"}'])
    assert await run(both) == Verdict("failed", error="no memory")
    assert not both.answers


@pytest.mark.parametrize("answers", [[UNKNOWN], [AWAY] * 5])
async def test_what_a_gpu_has_reported_counts_though_it_does_not_know_the_job_any_more(
    answers: list[tuple[int, Any]],
) -> None:
    reports = [None] * (len(answers) - 1)
    gpu = Gpu(BEGUN, *answers, reports=[*reports, '{"status": "success", "result": 8}'])
    assert await run(gpu) == Verdict("done", b"8")


async def test_no_report_is_looked_for_where_the_gpu_has_answered_the_result() -> None:
    assert await run(Gpu(BEGUN, DONE, reports=['{"status": "failed"}'])) == Verdict("done", b"7")


@pytest.mark.parametrize(("takes", "times"), [(1.5, [1.0, 4.0, 7.5, 11.0]), (2.5, [1.0, 4.5, 8.0, 11.5])])
def test_an_interval_before_a_question_begins_at_the_answer_before(takes: float, times: list[float]) -> None:
    """And not once Redis has noted what the GPU calls it, which `takes` so long."""

    async def act() -> None:
        asked: list[float] = []

        async def call(request: GpuRequest) -> Answer:
            await asyncio.sleep(1.0)
            asked.append(asyncio.get_running_loop().time())
            return Answer(200, orjson.dumps((BEGUN if len(asked) < 4 else DONE)[1]))

        async def note(job: Claimed, remote: str) -> bool:
            await asyncio.sleep(takes)
            return True

        async def reported(job: Claimed) -> str | None:
            await asyncio.sleep(2.5)
            return None

        config = CONFIG.model_copy(update={"poll_interval": 2.0})
        job = Claimed("flux", "one", "3", 1, 0, "", "", '{"payload":1}')
        assert (await run_attempt(job, b"1", UPSTREAM, config, call, note, reported)).kind == "done"
        assert asked == times

    in_virtual_time(act)
