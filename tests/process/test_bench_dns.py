"""`bench dns` as its users run it, with real processes, and as small as can be."""

import os
from pathlib import Path

import orjson
import pytest

from bench.figures.dns import SLB
from tests.process.benches import bench


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="load and responders have a core each")
async def test_answers_are_counted_for_each_kind_of_question(tmp_path: Path) -> None:
    found = tmp_path / "found.json"
    sizes = ["--instances", "3", "--rounds", "1", "--seconds", "0.3"]
    code, out = await bench("dns", *sizes, "--json", str(found))
    assert code == 0, out
    sections = orjson.loads(found.read_bytes())["sections"]
    assert len(sections) == 4
    for section in sections:
        measured = {figure["what"]: figure["value"] for figure in section["figures"]}
        assert measured[f"{SLB}, a second of CPU time"] > 0
        assert measured[f"{SLB}, a second"] > 0
