"""Callbacks of `slb serve`: sent where its settings let them go, signed, and by new settings after a reload."""

import asyncio
import re
from typing import Any

import orjson

from slb.jobs.webhook import headers_of
from slb.setting_values import signing_keys
from tests.process.commands import Commands, Serving
from tests.support.gpus import Gpu
from tests.support.receiver import Receiver
from tests.support.valkey import Valkey
from tests.support.waiting import eventually, until_found

SECRET = re.compile(r"whsec_[A-Za-z0-9+/]{32,}=*\n")


async def ask(slb: Commands, method: str, url: str, body: Any, wanted: int) -> None:
    async with slb.session.request(method, url, data=orjson.dumps(body)) as reply:
        assert reply.status == wanted, await reply.text()


async def submit(slb: Commands, serving: Serving, id_: str, url: str) -> None:
    body = {"model": "flux", "payload": id_, "job_id": id_, "callback_url": url, "metadata": {"order": 4711}}
    await ask(slb, "POST", f"{serving.api}/queue/submit", body, 202)


async def until_sent(slb: Commands, serving: Serving, id_: str) -> Any:
    """The job, once its callback was tried."""

    async def look() -> Any:
        job = await slb.json(f"{serving.api}/queue/jobs/{id_}")
        return job if "callback_attempts" in job else None

    return await until_found(look)


async def test_callbacks_follow_the_settings_and_are_signed(slb: Commands, valkey: Valkey) -> None:
    config, gpu, receiver = slb.directory / "slb.toml", Gpu(), await Receiver().start()
    config.write_text("")
    await gpu.server.start_server()
    try:
        flags = ("--roles", "proxy,jobs", "--config", str(config))
        serving = await slb.until_ready(await slb.serve(*flags, redis=valkey.url))
        body = {"model": "flux", "endpoint": gpu.endpoint}
        await ask(slb, "POST", f"{serving.api}/admin/register", body, 200)
        await submit(slb, serving, "refused", receiver.url)
        refused = await until_sent(slb, serving, "refused")
        assert (refused["status"], refused["callback_attempts"]) == ("completed", 1)
        assert "127.0.0.1 is not public, and in none of jobs_callback_networks" in refused["callback_error"]

        secret = (await slb.run("jobs", "secret")).out
        assert SECRET.fullmatch(secret)
        assert (await slb.run("jobs", "secret")).out != secret
        config.write_text(f'[jobs]\ncallback_networks = ["127.0.0.0/8"]\ncallback_secrets = "{secret.strip()}"\n')
        await eventually(lambda: "settings_reloaded" in serving.process.log.read_text())
        await submit(slb, serving, "one", receiver.url)
        shown = await until_sent(slb, serving, "one")
        assert shown["callback_attempts"] == 1
        assert "callback_error" not in shown

        received = next(each for each in receiver.received if each.job["job_id"] == "one")
        shown = {key: value for key, value in shown.items() if key != "callback_attempts"}
        assert received.job == shown
        assert (shown["result"], shown["metadata"]) == ({"of": "one"}, {"order": 4711})
        at = int(received.headers["webhook-timestamp"])
        assert abs(at - shown["completed_at"]) < 600
        signed = headers_of(f"one:{round(shown['completed_at'] * 1000)}", at, received.body, signing_keys(secret))
        assert {name: received.headers[name] for name in signed} == signed

        _, metrics = await slb.get(f"{serving.api}/metrics")
        assert 'slb_job_callbacks_total{model="flux",outcome="delivered"}' in metrics
        log = serving.process.log.read_text()
        assert '"event":"job_callback"' in log
        assert secret.strip() not in log
    finally:
        await asyncio.gather(receiver.stop(), gpu.server.close())
