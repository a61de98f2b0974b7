"""Which models are known: those that something is set on, and those that have a route. Redis is played."""

import math
from collections.abc import Collection
from types import SimpleNamespace
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from slb.control.jobs import JobLane
from slb.errors import Refused
from slb.job import model_of
from slb.jobs.models import Model, Models
from slb.jobs.runtime import JobRuntime
from slb.jobs.service import JobService
from slb.observe.jobs import JobCounts
from tests.unit.routing.mirror_rig import A, make_mirror, record, replace


class Stored:
    """What is set on the models."""

    def __init__(self) -> None:
        self.fields: dict[str, str] = {}
        self.jobs: set[str] = set()

    async def all(self) -> dict[str, str]:
        return self.fields

    async def with_jobs(self) -> set[str]:
        return set(self.jobs)

    async def note_jobs(self, models: Collection[str]) -> None:
        self.jobs.update(models)


async def test_models_are_known_by_their_routes_and_settings_which_are_gone_through_once_for_each_table(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stored, mirror, looked = Stored(), make_mirror(), list[str]()
    monkeypatch.setattr("slb.jobs.models.JobModels", lambda connection: stored)

    def looks(path: str) -> str | None:
        looked.append(path)
        return model_of(path)

    monkeypatch.setattr("slb.jobs.models.model_of", looks)
    nothing: Any = None
    models = Models(nothing, mirror, lambda name: Model(cast("JobLane", SimpleNamespace()), None, nothing))
    assert dict(models.known) == {}
    replace(mirror, {"/jobs/flux": record(A), "/jobs/zimg": record(A)})
    assert set(models.known) == {"flux", "zimg"}
    stored.fields = {"flux": '{"max_retries": 3}', "new": "{}"}
    await models.look()
    assert {name: config.max_retries for name, config in models.known.items()} == {"flux": 3, "zimg": 50, "new": 50}
    looked.clear()
    for _ in range(100):  # as submits do
        await models.of("flux")
    assert looked == []
    replace(mirror, {"/jobs/flux": record(A)})
    assert set(models.known) == {"flux", "new"}
    assert looked == ["/jobs/flux"]


async def test_of_settings_that_a_newer_version_wrote_those_that_are_known_hold_and_the_others_are_named_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stored, nothing = Stored(), cast("Any", None)
    monkeypatch.setattr("slb.jobs.models.JobModels", lambda connection: stored)
    models = Models(nothing, make_mirror(), lambda name: Model(cast("JobLane", SimpleNamespace()), None, nothing))
    stored.fields = {"rolled": '{"max_retries": 3, "paused": true, "sticky": 1, "colour": []}'}
    with capture_logs() as logs:
        for _ in range(3):
            await models.look()
    assert (models.known["rolled"].max_retries, models.known["rolled"].paused) == (3, True)
    assert [(line["event"], line["settings"]) for line in logs] == [
        ("job_model_setting_unknown", ["colour", "sticky"])
    ]


async def test_settings_that_cannot_be_read_are_said_once_and_not_each_second(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stored, nothing = Stored(), cast("Any", None)
    monkeypatch.setattr("slb.jobs.models.JobModels", lambda connection: stored)
    models = Models(nothing, make_mirror(), lambda name: Model(cast("JobLane", SimpleNamespace()), None, nothing))
    stored.fields = {"flux": '{"max_retries": "many"}', "odd": "{", "new": '{"max_retries": 2}', "list": "[]"}
    with capture_logs() as logs:
        for _ in range(3):
            await models.look()
    assert list(models.known) == ["new"]
    assert [line["model"] for line in logs] == ["flux", "odd", "list"]


async def test_how_many_jobs_there_are_is_not_told_before_it_is_known_of_which_models(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An instance that has just begun would say that there are none."""
    stored, mirror = Stored(), make_mirror()
    monkeypatch.setattr("slb.jobs.models.JobModels", lambda connection: stored)
    stored.fields = {"flux": "{}"}
    runtime = JobRuntime(cast("Any", SimpleNamespace(script_line=lambda *_: None)), mirror, "here", JobCounts())
    service = JobService(runtime, mirror)
    with pytest.raises(Refused, match="not_ready"):
        await service.stats()
    replace(mirror, {"/jobs/zimg": record(A)})
    runtime.models.running.clear()
    runtime.models._looked = -math.inf

    async def none_waits(lane: JobLane) -> str:
        return lane.model

    monkeypatch.setattr(JobLane, "stats", none_waits)
    monkeypatch.setattr(JobLane, "run", none_waits)
    assert sorted(await service.stats()) == ["flux", "zimg"]


async def test_more_models_than_may_be_are_refused_and_those_with_jobs_have_a_lane(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stored, nothing = Stored(), cast("Any", None)
    monkeypatch.setattr("slb.jobs.models.JobModels", lambda connection: stored)
    monkeypatch.setattr("slb.jobs.models.MOST_MODELS", 3)
    mirror = make_mirror()
    models = Models(nothing, mirror, lambda name: Model(cast("JobLane", SimpleNamespace()), None, nothing))
    stored.jobs = {"zimg", "gone"}
    replace(mirror, {f"/jobs/{name}": record(A) for name in ("a", "b", "c", "zimg")})
    await models.look()
    assert set(models.running) == {"a", "gone", "zimg"}
    with pytest.raises(Refused, match="too_many_models: model: 'b' is beyond them"):
        await models.of("b")
    with pytest.raises(Refused, match="too_many_models"):
        models.check_room(["new"])
    models.check_room(["zimg"])
    assert stored.jobs == {"zimg", "gone", "a"}
    stored.jobs.add("late")  # by way of an instance that has room
    await models.look()
    assert set(models.running) == {"a", "gone", "zimg", "late"}
