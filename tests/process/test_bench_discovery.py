"""`bench discovery` as its users run it, with real processes, and as small as can be."""

from pathlib import Path

import orjson

from tests.process.benches import bench


async def test_a_few_services_are_followed_changed_and_rolled(tmp_path: Path) -> None:
    found = tmp_path / "found.json"
    sizes = ["--services", "3", "--pods", "2", "--proxies", "2", "--tries", "1"]
    code, out = await bench("discovery", *sizes, "--json", str(found))
    assert code == 0, out
    of_events, rolling = orjson.loads(found.read_bytes())["sections"]
    assert len(of_events["figures"]) == 7
    measured = {figure["what"]: figure["value"] for figure in rolling["figures"]}
    assert measured["events at the API server"] == 5
    assert 0 < measured["changes written to Redis"] <= 5
