"""Jobs that go on at the GPUs of another model."""

from functools import partial
from typing import Any
from urllib.parse import quote

from tests.process.commands import Serving
from tests.process.dispatchers import MODEL, Dispatchers, MakeGpu
from tests.support.gpus import Gpu
from tests.support.valkey import Valkey
from tests.support.waiting import eventually

SMALL = "flux-small"
FAILS = (500, {"error": "out of memory"})


async def register_small(jobs: Dispatchers, at: Serving, gpu: Gpu, **config: Any) -> None:
    await jobs.ask("PUT", f"{at.api}/admin/model-configs/{SMALL}", config)
    await jobs.ask("POST", f"{at.api}/admin/register", {"model": SMALL, "endpoint": gpu.endpoint})


async def test_a_job_that_was_tried_as_often_as_it_may_goes_on_at_the_next_model(
    jobs: Dispatchers, gpu: MakeGpu
) -> None:
    one = await jobs.serve()
    large, small = await gpu(), await gpu()
    large.answers, small.answers = [FAILS] * 3, [FAILS]
    own = {"retry_backoff": 0.05, "max_retries": 2}
    await jobs.register(one, large, **own, fallback_models=["nowhere", SMALL])
    await register_small(jobs, one, small, **own)
    await jobs.submit(one, "job")
    (ended,) = await jobs.until_ended(one, ["job"])
    assert (ended["status"], ended["model"], ended["ran_on"]) == ("completed", MODEL, SMALL)
    assert (ended["attempts"], ended["failures"]) == (5, 1)
    assert (large.begun["job"], small.begun["job"]) == (3, 2)
    await jobs.submit(one, "next")
    (ended,) = await jobs.until_ended(one, ["next"])
    assert (ended["status"], "ran_on" in ended) == ("completed", False)


async def test_several_dispatchers_never_run_more_than_the_slots_of_a_model_or_of_its_fallback(
    jobs: Dispatchers, gpu: MakeGpu, valkey: Valkey
) -> None:
    """Both GPUs are full all the time; at the fallback's there are jobs of both models."""
    fleet = [await jobs.serve() for _ in range(3)]
    large, small = await gpu(holds=True), await gpu(holds=True)
    large.answers = [FAILS] * 4
    for model, there, fallbacks in ((SMALL, small, []), (MODEL, large, [SMALL])):
        config = {"max_retries": 0, "fallback_models": fallbacks}
        await jobs.ask("PUT", f"{fleet[0].api}/admin/model-configs/{model}", config)
        body = {"model": model, "endpoint": there.endpoint, "slots": 2}
        await jobs.ask("POST", f"{fleet[0].api}/admin/register", body)

    def in_flight(there: Gpu, model: str) -> float:
        member = there.endpoint.removeprefix("http://").removesuffix("/generate")
        return valkey.admin.zscore(f"slb:{{/jobs/{model}}}:inflight", member) or 0.0

    for number in range(12):
        await jobs.submit(fleet[number % 3], f"large-{number}")
        await jobs.submit(fleet[number % 3], f"small-{number}", model=SMALL)

    def is_full(there: Gpu, begun: int) -> bool:
        return (there.running, there.begun.total()) == (2, begun)

    async def run_out(there: Gpu, model: str, begun: int, all_: int) -> None:
        """Two at a time, from the first two that run after `begun` others that have ended."""
        while begun < all_:
            begun += 2
            await eventually(partial(is_full, there, begun))
            for at in fleet:  # each has had calls in which it could have begun one more
                await jobs.ask("GET", f"{at.api}/queue/stats")
            assert in_flight(there, model) == 2
            there.go.set()
            there.go.clear()

    await run_out(large, MODEL, 4, 12)
    await run_out(small, SMALL, 0, 16)
    ended = await jobs.until_ended(fleet[0], [f"large-{number}" for number in range(12)])
    assert {job["status"] for job in ended} == {"completed"}
    assert sum("ran_on" in job for job in ended) == 4
    assert (large.most, small.most) == (2, 2)
    assert set(large.begun.values()) == set(small.begun.values()) == {1}
    await eventually(lambda: in_flight(large, MODEL) == in_flight(small, SMALL) == 0)
    for at in fleet:
        assert '"event":"job_attempt"' in at.process.log.read_text()


async def test_a_job_whose_model_has_no_gpu_runs_at_the_next_and_is_dead_behind_the_last(
    jobs: Dispatchers, gpu: MakeGpu
) -> None:
    one = await jobs.serve()
    small = await gpu()
    small.answers = [FAILS]
    await jobs.ask("PUT", f"{one.api}/admin/model-configs/{MODEL}", {"fallback_models": [SMALL]})
    await register_small(jobs, one, small, max_retries=0)
    await jobs.submit(one, "dead")
    (ended,) = await jobs.until_ended(one, ["dead"])
    assert (ended["status"], ended["ran_on"]) == ("dead_lettered", SMALL)
    await jobs.submit(one, "job")
    (ended,) = await jobs.until_ended(one, ["job"])
    assert (ended["status"], ended["ran_on"], ended["attempts"]) == ("completed", SMALL, 1)


async def test_the_ids_of_a_model_and_of_its_fallback_model_may_have_signs_in_them(
    jobs: Dispatchers, gpu: MakeGpu
) -> None:
    model, next_ = "llama3:70b@v1", "llama3:8b@v1+q4"
    one, large, small = await jobs.serve(), await gpu(), await gpu()
    large.answers, small.answers = [FAILS], [FAILS]
    config = {"retry_backoff": 0.05, "max_retries": 0, "fallback_models": [next_]}
    await jobs.ask("PUT", f"{one.api}/admin/model-configs/{quote(model)}", config)
    await jobs.ask(
        "PUT", f"{one.api}/admin/model-configs/{quote(next_)}", {"retry_backoff": 0.05, "max_retries": 1}
    )
    for each, server in ((model, large), (next_, small)):
        await jobs.ask("POST", f"{one.api}/admin/register", {"model": each, "endpoint": server.endpoint})
    await jobs.submit(one, "job", model=model)
    ended = await jobs.ask("GET", f"{one.api}/queue/jobs/job?wait=60s")
    assert (ended["status"], ended["model"], ended["ran_on"]) == ("completed", model, next_)
    assert (large.begun["job"], small.begun["job"]) == (1, 2)


async def test_a_dispatcher_that_dies_at_the_other_model_leaves_the_job_there(
    jobs: Dispatchers, gpu: MakeGpu
) -> None:
    one, other = await jobs.serve(), await jobs.serve()
    large, small = await gpu(), await gpu(holds=True)
    large.answers = [FAILS]
    await jobs.register(one, large, max_retries=0, fallback_models=[SMALL])
    await register_small(jobs, one, small)
    await jobs.submit(one, "job")
    await eventually(lambda: small.running == 1)
    for each in (one, other):
        each.process.kill()
    small.go.set()
    again = await jobs.serve()
    (ended,) = await jobs.until_ended(again, ["job"])
    assert (ended["status"], ended["ran_on"]) == ("completed", SMALL)
    assert (large.begun["job"], small.begun["job"]) == (1, 2)


async def test_a_model_is_no_fallback_of_its_own(jobs: Dispatchers) -> None:
    one = await jobs.serve()
    url = f"{one.api}/admin/model-configs/{MODEL}"
    for bad in ([MODEL], ["a", "a"], ["../a"]):
        refused = await jobs.ask("PUT", url, {"fallback_models": bad}, wanted=400)
        assert "fallback_models" in refused["detail"]
