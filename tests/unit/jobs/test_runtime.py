"""What ends a runtime."""

from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from slb.config import Settings
from slb.control.jobs import JobLane
from slb.jobs.runtime import JobRuntime
from slb.observe.jobs import JobCounts
from slb.routing.mirror import Mirror
from tests.support.waiting import soon


async def test_a_model_whose_lane_breaks_ends_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    async def breaks(_: JobLane) -> None:
        raise LookupError("broken")

    async def nothing(*_: object) -> None: ...

    async def begins() -> None:
        runtime.models.running.setdefault("flux", runtime._made("flux"))

    async def no_stats() -> dict[str, Any]:
        return {}

    connection: Any = SimpleNamespace(script_line=lambda *_: None)
    runtime = JobRuntime(connection, Mirror(Settings().route_settings, Random(1)), "here", JobCounts())
    monkeypatch.setattr(JobLane, "run", breaks)
    monkeypatch.setattr("slb.jobs.runtime.LOOK", 0.001)
    monkeypatch.setattr(runtime.durability, "look", nothing)
    monkeypatch.setattr(runtime.models, "look", begins)
    monkeypatch.setattr(runtime.models, "stats", no_stats)
    with pytest.raises(ExceptionGroup) as caught:
        await soon(runtime.run())
    assert [repr(each) for each in caught.value.exceptions] == ["LookupError('broken')"]
