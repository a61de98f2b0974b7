"""`bench sick` as its users run it, with real processes, and as small as can be."""

from pathlib import Path

import orjson

from tests.process.benches import bench


async def test_what_callers_notice_of_a_sick_server_is_measured_and_kept(tmp_path: Path) -> None:
    kept = tmp_path / "found.json"
    words = ["--kinds", "500", "--only", "slb", "--seconds", "5", "--back", "3", "--rate", "20"]
    code, out = await bench("sick", *words, "--json", str(kept))
    assert code == 0, out
    (section,) = orjson.loads(kept.read_bytes())["sections"]
    figures = {figure: cell for _, figure, cell, _ in section["rows"]}
    assert float(figures["failed, %"]) > 0, "the first callers at least"
    assert float(figures["sent to the sick one, %"]) > 0
    assert [figure["what"] for figure in section["figures"]] == [
        "500: failed",
        "500: left out after",
        "500: wrongly left out",
    ]


async def test_healthy_traffic_has_a_table_of_its_own(tmp_path: Path) -> None:
    kept, trace = tmp_path / "found.json", tmp_path / "trace.csv"
    stamp = "2023-11-16 18:17:0"
    lines = [f"{stamp}{number}.0000000,10,{tokens}" for number, tokens in enumerate((5, 10, 20))]
    trace.write_text("\n".join(["TIMESTAMP,ContextTokens,GeneratedTokens", *lines]))
    code, out = await bench("sick", "--healthy", "0.1", "--shape", "8", "--trace", str(trace), "--json", str(kept))
    assert code == 0, out
    (section,) = orjson.loads(kept.read_bytes())["sections"]
    assert [row[:2] for row in section["rows"]] == [
        ["none", "failed, %"],
        ["", "p99 of the served, ms"],
        ["", "wrongly left out, servers"],
    ]
    assert float(section["rows"][0][2]) == 0
