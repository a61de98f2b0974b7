"""The benches of jobs as their users run them, as small as can be, without other job systems."""

import shutil
from pathlib import Path

import orjson
import pytest

from tests.process.benches import bench

ALONE = ("--only", "slb")


@pytest.mark.skipif(shutil.which("wrk") is None, reason="wrk sends the load")
async def test_what_a_job_costs_is_measured_and_kept(tmp_path: Path) -> None:
    found = tmp_path / "found.json"
    sizes = ("--rounds", "1", "--count", "100", "--seconds", "1", "--waiting", "1500")
    code, out = await bench("jobs", *ALONE, *sizes, "--json", str(found))
    assert code == 0, out
    table, goals, rates, waiting, _ = orjson.loads(found.read_bytes())["sections"]
    assert [row[0] for row in table["rows"]] == ["slb"]
    assert all(figure["value"] > 0 for figure in (*goals["figures"], *rates["figures"]))
    assert [row[0] for row in waiting["rows"]] == ["dispatch", "status", "submit"]


async def test_a_system_that_there_is_not_is_refused_by_name() -> None:
    code, out = await bench("jobs", "--only", "cron")
    assert code == 2
    assert "cron: known are slb, BullMQ" in out


async def test_jobs_of_a_killed_and_of_a_frozen_worker_are_watched(tmp_path: Path) -> None:
    found = tmp_path / "found.json"
    code, out = await bench("jobs-crash", *ALONE, "--frozen", "1", "--watched", "8", "--json", str(found))
    assert code == 0, out
    table, _ = orjson.loads(found.read_bytes())["sections"]
    assert [row[:2] for row in table["rows"]] == [["slb", "killed"], ["slb", "frozen"]]
    assert table["rows"][0][2] == "5 of 5"


async def test_requests_are_measured_alone_and_beside_jobs(tmp_path: Path) -> None:
    found = tmp_path / "found.json"
    sizes = ("--pods", "2", "--seconds", "1", "--service", "0.05")
    code, out = await bench("jobs-shared", *sizes, "--json", str(found))
    assert code == 0, out
    (section,) = orjson.loads(found.read_bytes())["sections"]
    figures = {figure["what"]: figure["value"] for figure in section["figures"]}
    assert figures["requests failed"] == 0
    assert figures["slots busy with jobs"] > figures["slots busy"]
