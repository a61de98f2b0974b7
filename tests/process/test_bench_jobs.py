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
