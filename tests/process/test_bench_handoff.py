"""`bench handoff` as its users run it, with real processes, and as small as can be."""

from pathlib import Path

import orjson

from tests.process.benches import bench


async def test_handoffs_are_measured_at_the_pods_and_kept(tmp_path: Path) -> None:
    found = tmp_path / "found.json"
    sizes = ["--instances", "1,2", "--pods", "2", "--seconds", "0.5", "--service", "0.02"]
    code, out = await bench("handoff", *sizes, "--json", str(found))
    assert code == 0, out
    (section,) = orjson.loads(found.read_bytes())["sections"]
    assert [row[:2] for row in section["rows"]] == [[n, step] for n in "12" for step in ("out of step", "in step")]
    assert all(int(row[-2]) > 0 for row in section["rows"])
    assert all(row[6:8] == ["-", "-"] for row in section["rows"][:2]), "one instance is the same one"
