"""Tasks that follow files or a supervisor go on, whatever one reload comes to."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from structlog.testing import capture_logs

from slb.app import App
from slb.config import Settings
from slb.lifecycle import Stopping
from slb.loading import load_settings
from slb.observe.metrics import Metrics
from slb.proxy.tls import certificates
from slb.supervisor import work
from slb.supervisor.workers import Job
from slb.upstreams.tls import UpstreamTls
from tests.support.certificates import Authority
from tests.support.waiting import eventually


def fails(*_: object) -> None:
    raise RuntimeError("a fault of slb's own")


async def test_a_fault_over_a_new_certificate_is_logged_and_the_next_one_is_taken(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    metrics = Metrics()
    loaded = certificates(Settings(tls_certificates=(authority.issue("a", "a.test"),)), metrics)
    assert loaded is not None
    old = loaded.context
    with monkeypatch.context() as patch, capture_logs() as logged:
        patch.setattr(loaded, "_load", fails)
        authority.issue("a", "a.test")
        loaded.reload()
    assert (loaded.context, metrics.tls.reload_failures) == (old, 1)
    (line,) = logged
    assert line.pop("exc_info") is not None
    assert (line["event"], line["error"]) == ("certificate_refused", "a fault of slb's own")
    assert Path(line["file"]).name == "a.pem"
    authority.issue("a", "a.test")
    loaded.reload()
    assert loaded.context is not old


async def test_a_fault_over_new_files_for_upstreams_is_logged_and_the_next_ones_are_taken(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate, key = authority.issue("own", "slb.test").split(":")
    part = UpstreamTls(load_settings({"upstream_certificate": certificate, "upstream_key": key}, {}), Metrics())
    old = await part.context()
    with monkeypatch.context() as patch, capture_logs() as logged:
        patch.setattr(part, "_load", fails)
        authority.issue("own", "slb.test")
        part.reload()
    assert await part.context() is old
    assert [(line["event"], line["error"], line["files"]) for line in logged] == [
        ("upstream_certificates_refused", "a fault of slb's own", [certificate, key])
    ]
    authority.issue("own", "slb.test")
    part.reload()
    assert await part.context() is not old


async def test_a_worker_that_fails_over_new_settings_takes_the_old_ones_again_and_goes_on() -> None:
    held: list[int] = []
    nothing_shared = SimpleNamespace(data=[], shared=set())
    core = SimpleNamespace(settings=load_settings({"max_headers": 1}, {}), sockets=nothing_shared, predecessor=None)

    async def reconfigure(settings: Settings) -> None:
        held.append(settings.max_headers)
        core.settings = settings
        if settings.max_headers == 2:
            raise RuntimeError("halfway")

    jobs: asyncio.Queue[bytes] = asyncio.Queue()
    app = cast("App", SimpleNamespace(core=core, reconfigure=reconfigure))
    with capture_logs() as lines:
        following = asyncio.create_task(work._follow(jobs, app, Stopping()))
        for most in (2, 3):
            settings = load_settings({"max_headers": most}, {})
            job = Job(settings=settings, data_fds=[], api_path=Path("api"), api_addresses=[], worker="0")
            jobs.put_nowait(job.to_line())
        await eventually(lambda: held == [2, 1, 3])
    assert [(line["event"], line["error"]) for line in lines] == [("settings_refused", "RuntimeError('halfway')")]
    following.cancel()
    await asyncio.wait([following])
