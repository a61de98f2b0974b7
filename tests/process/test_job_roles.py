"""Which processes dispatch jobs: instances without traffic, and the workers of one with."""

import asyncio
import os
import re
import signal

from tests.process.dispatchers import MODEL, Dispatchers, MakeGpu
from tests.process.serving import until_all_ready
from tests.support.waiting import eventually, until


async def test_an_instance_with_jobs_alone_takes_runs_and_ends_them(jobs: Dispatchers, gpu: MakeGpu) -> None:
    one, other = await asyncio.gather(jobs.alone(), jobs.alone("serve", "--roles", "jobs"))
    here = await gpu()
    await jobs.register(one, here)
    ids = [f"job-{number}" for number in range(20)]
    await asyncio.gather(*(jobs.submit((one, other)[number % 2], id_) for number, id_ in enumerate(ids)))
    ended = await jobs.until_ended(other, ids)
    assert [each["result"] for each in ended] == [{"of": id_} for id_ in ids]
    assert here.begun == dict.fromkeys(ids, 1)
    assert "serves jobs, API " in one.line
    shown = await jobs.ask("GET", f"{one.api}/status")
    assert (shown["roles"], "at_risk" in shown["jobs"]) == (["jobs"], True)


async def test_a_job_that_no_replica_has_is_refused_by_name(jobs: Dispatchers) -> None:
    config = jobs.slb.directory / "slb.toml"
    config.write_text('[jobs]\ndurability = "replica"\n')
    one = await jobs.alone("jobs", "--config", str(config))
    await jobs.ask("PUT", f"{one.api}/admin/model-configs/{MODEL}", {})
    refused = await jobs.ask("POST", f"{one.api}/queue/submit", {"model": MODEL, "payload": 1}, wanted=503)
    assert refused["error"] == "not_replicated"
    id_ = re.findall("taken as job ([0-9a-f]+)", refused["detail"])[0]
    assert (await jobs.job(one, id_))["status"] == "queued"
    many = await jobs.ask("POST", f"{one.api}/queue/submit-many", [{"model": MODEL, "payload": 1}], wanted=202)
    assert [each["error"] for each in many["jobs"]] == ["not_replicated"]


async def test_jobs_alone_end_before_their_instance_does(jobs: Dispatchers, gpu: MakeGpu) -> None:
    one = await jobs.alone()
    here = await gpu(holds=True)
    await jobs.register(one, here)
    await jobs.submit(one, "long")
    await eventually(lambda: here.running == 1)
    stopped = asyncio.create_task(one.process.stop())
    await eventually(lambda: "stopping" in one.process.log.read_text())
    here.go.set()
    assert await stopped == 0
    (ended,) = await jobs.until_ended(await jobs.alone(), ["long"])
    assert (ended["status"], here.begun) == ("completed", {"long": 1})


async def test_workers_run_the_jobs_that_their_supervisor_takes(jobs: Dispatchers, gpu: MakeGpu) -> None:
    one = await jobs.serve("--workers", "2")
    await until_all_ready(jobs.slb, one)
    gpus = [await gpu(holds=True) for _ in range(4)]
    for each in gpus:
        await jobs.register(one, each)
    ids = [f"job-{number}" for number in range(8)]
    for id_ in ids:
        await jobs.submit(one, id_)
    await eventually(lambda: all(each.running == 1 for each in gpus))
    shown = (await jobs.ask("GET", f"{one.api}/queue/stats"))["models"]["flux"]
    assert (shown["queued"], shown["processing"]) == (4, 4)
    counted = 'slb_jobs{model="flux",state="processing"} 4.0'
    await until(lambda: jobs.slb.get(f"{one.api}/metrics"), lambda found: counted in found[1], what=counted)
    for each in gpus:
        each.go.set()
    ended = await jobs.until_ended(one, ids)
    assert [each["result"] for each in ended] == [{"of": id_} for id_ in ids]
    assert [each.most for each in gpus] == [1] * 4
    assert await one.process.stop() == 0


async def test_what_a_killed_worker_ran_begins_again_at_another(jobs: Dispatchers, gpu: MakeGpu) -> None:
    one = await jobs.serve("--workers", "2")
    await until_all_ready(jobs.slb, one)
    here = await gpu(holds=True)
    await jobs.register(one, here)
    await jobs.submit(one, "long")
    await eventually(lambda: here.running == 1)
    pids = [each["pid"] for each in (await jobs.ask("GET", f"{one.api}/status"))["workers"]]
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    here.go.set()
    (ended,) = await jobs.until_ended(one, ["long"])
    assert (ended["status"], ended["attempts"], here.begun) == ("completed", 2, {"long": 2})
