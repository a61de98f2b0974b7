"""`bench handoff` as its users run it, with real processes, and as small as can be."""

from pathlib import Path

import orjson

from tests.process.test_bench_quota import bench


async def test_handoffs_are_measured_at_the_pods_and_kept(tmp_path: Path) -> None:
    found = tmp_path / "found.json"
    sizes = ["--instances", "1,2", "--pods", "2", "--seconds", "0.5", "--service", "0.02"]
    code, out = await bench("handoff", *sizes, "--json", str(found))
    assert code == 0, out
    runs = orjson.loads(found.read_bytes())["raw"]["runs"]
    assert [(run["who"], run["instances"], run["in_step"]) for run in runs] == [
        (who, instances, in_step)
        for who in ("slb serve", "the ledger alone")
        for instances in (1, 2)
        for in_step in (False, True)
    ]
    assert all(run["gaps_ms"] for run in runs)
    assert all(same for run in runs if run["instances"] == 1 for _, same in run["gaps_ms"])
