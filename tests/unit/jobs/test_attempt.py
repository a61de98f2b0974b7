"""One attempt at a job whose GPU runs it on its own: the questions how it goes. The GPU is a list of answers."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import orjson
import pytest

from slb.balance.upstream import LiveUpstream
from slb.errors import UPSTREAM_CONNECT, Refused
from slb.job import Claimed, ModelConfig
from slb.jobs.attempt import Notes, follow_attempt, run_attempt
from slb.jobs.gpu_call import Answer, AnswerTooLarge, GpuRequest
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
    """Answers in turn; `calls`: what it was called with; `reports`: what it has told by itself, at each look;
    `heard`: what is known of it while it goes on."""

    def __init__(self, *answers: tuple[int, Any], reports: Sequence[str | None] = ()) -> None:
        self.answers = list(answers)
        self.reports = reports
        self.calls: list[tuple[str, Mapping[str, str]]] = []
        self.heard: list[tuple[bytes, str | None]] = []

    def notes(self, is_ours: bool = True) -> Notes:
        async def remote(job: Claimed, remote: str) -> bool:
            return is_ours

        async def reported(job: Claimed) -> str | None:
            return reports.pop(0) if reports else None

        async def heard(job: Claimed, verdict: Verdict) -> None:
            self.heard.append((verdict.progress, verdict.new_word))

        reports = list(self.reports)
        return Notes(remote, reported, heard)

    async def __call__(self, request: GpuRequest) -> Answer:
        self.calls.append((f"{request.method} {request.target}", request.headers))
        status, answer = self.answers.pop(0)
        if not status:
            raise Refused(UPSTREAM_CONNECT, "refused")
        return Answer(status, answer if isinstance(answer, bytes) else orjson.dumps(answer))


async def run(gpu: Gpu, config: ModelConfig = CONFIG, is_ours: bool = True) -> Verdict:
    job = Claimed("flux", "one", "3", 1, 0, "", "", '{"payload":1}')
    return await run_attempt(job, b"1", UPSTREAM, config, gpu, gpu.notes(is_ours))


async def follow(gpu: Gpu, config: ModelConfig = CONFIG) -> Verdict:
    job = Claimed("flux", "one", "3", 1, 0, "r0", UPSTREAM.member, '{"payload":1}')
    return await follow_attempt(job, UPSTREAM, config, gpu, gpu.notes())


ODD: list[tuple[int, Any]] = [
    *((status, {}) for status in (302, 400, 401, 403, 404, 405, 408, 409, 410, 500)),
    (200, b"<html>sign in</html>"),
    (200, b""),
    (204, b""),
]


@pytest.mark.parametrize(
    "between",
    [
        [RUNS],
        [(503, {})] * 9,
        [AWAY] * 4 + [RUNS] + [AWAY] * 4,
        [(500, {})] * 4,
        [(202, b"")] * 9,
        *([each] for each in ODD),
        [(404, {}), RUNS, (404, {}), (500, {}), (410, {})],
        [(200, []), (200, None), (200, {"progress": 0.3}), (200, {"status": "warming up"})] * 3,
    ],
)
async def test_a_gpu_that_is_busy_or_away_for_a_moment_is_asked_again(between: list[tuple[int, Any]]) -> None:
    assert await run(Gpu(BEGUN, *between, DONE)) == Verdict("done", b"7")


@pytest.mark.parametrize("answer", [AWAY, *(each for each in ODD if each[0] not in (404, 410))])
async def test_one_that_does_not_say_how_it_goes_may_run_it_still(answer: tuple[int, Any]) -> None:
    verdict = await run(Gpu(BEGUN, *[answer] * 5))
    assert (verdict.kind, verdict.runs_on) == ("failed", True)


async def test_a_gpu_that_reports_that_a_job_goes_on_need_not_say_again_which() -> None:
    assert await run(Gpu(BEGUN, RUNS, DONE, reports=['{"status": "processing"}'])) == Verdict("done", b"7")


async def test_one_that_another_instance_has_taken_over_meanwhile_is_not_followed() -> None:
    gpu = Gpu(BEGUN)
    verdict = await run(gpu, is_ours=False)
    assert (verdict.kind, [call for call, _ in gpu.calls]) == ("failed", ["POST /generate"])
    assert verdict.runs_on  # and the other one has it begun anew, or follows it
    assert "taken it over" in verdict.error


async def test_a_job_that_its_gpu_lost_by_a_restart_is_tried_again() -> None:
    verdict = await run(Gpu(BEGUN, RUNS, UNKNOWN, (410, {})))
    assert (verdict.kind, verdict.runs_on) == ("failed", False)


@pytest.mark.parametrize("word", ["FAILED", "TIMED_OUT", "canceled", "aborted", "timed out"])
async def test_a_word_of_the_gpus_ends_it_at_once(word: str) -> None:
    verdict = await run(Gpu(BEGUN, RUNS, (200, {"status": word, "error": "CUDA OOM"})))
    assert verdict == Verdict("failed", error="CUDA OOM")


async def test_how_far_it_has_come_and_words_that_are_not_known_are_told_where_they_change() -> None:
    first, second = {"status": "IN_PROGRESS", "progress": 0.1}, {"status": "warming", "output": ["a"]}
    gpu = Gpu((200, {"status": "IN_QUEUE", "id": "r1"}), (200, first), (200, first), (200, second), DONE)
    assert (await run(gpu)).kind == "done"
    assert [call for call, _ in gpu.calls][1:] == ["GET /status/r1"] * 4
    assert gpu.heard == [(b"", None), (b'{"progress":0.1}', None), (b'{"output":["a"]}', "warming")]


async def test_an_end_that_is_too_long_ends_it_and_the_gpu_may_run_it_still() -> None:
    gpu = Gpu(BEGUN)

    async def call(request: GpuRequest) -> Answer:
        if gpu.answers:
            return await gpu(request)
        raise AnswerTooLarge

    job = Claimed("flux", "one", "3", 1, 0, "", "", '{"payload":1}')
    verdict = await run_attempt(job, b"1", UPSTREAM, CONFIG, call, gpu.notes())
    assert (verdict.kind, verdict.runs_on) == ("refused", True)


async def test_what_did_not_end_in_time_says_the_last_word_that_slb_does_not_know() -> None:
    config = CONFIG.model_copy(update={"max_poll_time": 0.05})
    verdict = await run(Gpu(BEGUN, *[(200, {"status": "fine"})] * 999), config)
    assert (verdict.kind, verdict.runs_on) == ("failed", True)
    assert "'fine', which slb does not know" in verdict.error


async def test_what_an_attempt_before_left_there_is_followed_from_now_on() -> None:
    gpu = Gpu(RUNS, DONE)
    assert await follow(gpu) == Verdict("done", b"7")
    assert [call for call, _ in gpu.calls] == ["GET /status/r0"] * 2
    later = CONFIG.model_copy(update={"poll_interval": 3600.0})
    assert await follow(Gpu(DONE), later) == Verdict("done", b"7")
    assert (await follow(Gpu(UNKNOWN, UNKNOWN))).kind == "unknown"


@pytest.mark.parametrize(("on", "route"), [("", "/jobs/flux"), ("flux-small", "/jobs/flux-small")])
async def test_each_call_names_the_route_of_the_model_that_runs_it(on: str, route: str) -> None:
    gpu, routes = Gpu(BEGUN, DONE), list[str]()

    async def call(request: GpuRequest) -> Answer:
        routes.append(request.route)
        return await gpu(request)

    job = Claimed("flux", "one", "3", 1, 0, "", "", '{"payload":1}')._replace(on=on)
    await run_attempt(job, b"1", UPSTREAM, CONFIG, call, gpu.notes())
    assert routes == [route] * 2


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


@pytest.mark.parametrize("answers", [[UNKNOWN] * 2, [AWAY] * 5])
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

        async def heard(job: Claimed, verdict: Verdict) -> None:
            pass

        async def reported(job: Claimed) -> str | None:
            await asyncio.sleep(2.5)
            return None

        config = CONFIG.model_copy(update={"poll_interval": 2.0})
        notes = Notes(note, reported, heard)
        job = Claimed("flux", "one", "3", 1, 0, "", "", '{"payload":1}')
        assert (await run_attempt(job, b"1", UPSTREAM, config, call, notes)).kind == "done"
        assert asked == times

    in_virtual_time(act)
