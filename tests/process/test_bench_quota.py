"""The quota lab as its command, on a small backlog."""

from pathlib import Path
from random import Random
from typing import Any

import orjson

from bench.gpu.work import TRACES
from bench.table import Figure
from tests.process.benches import bench


def write_traces(folder: Path, lines: int) -> None:
    """In the form of the real ones."""
    rng = Random(1)
    for name in TRACES.values():
        rows = [
            f"2023-11-16 18:17:03.9799600,{rng.randrange(50, 2000)},{rng.randrange(1, 300)}" for _ in range(lines)
        ]
        (folder / name).write_text("\n".join(["TIMESTAMP,ContextTokens,GeneratedTokens", *rows]))


async def measured(folder: Path, *words: str) -> list[Any]:
    """The sections of a run, which goes well."""
    found = folder / "found.json"
    code, out = await bench("quota", "--traces", str(folder), "--json", str(found), *words)
    assert code == 0, out
    sections: list[Any] = orjson.loads(found.read_bytes())["sections"]
    return sections


def goals_of(sections: list[Any]) -> dict[str, Figure]:
    return {goal["what"]: Figure(**goal) for section in sections for goal in section["figures"]}


def rows_of(sections: list[Any], title: str) -> dict[str, list[str]]:
    """Of the table whose title begins so: its rows by the first column."""
    (section,) = (section for section in sections if section["title"].startswith(title))
    return {row[0]: row for row in section["rows"]}


async def test_the_lab_drains_and_keeps_what_it_measured(tmp_path: Path) -> None:
    write_traces(tmp_path, 150)
    sections = await measured(tmp_path, "--prompts", "300")
    goals, ways = goals_of(sections), rows_of(sections, "300 prompts")
    assert list(ways)[1:4] == ["as-is, limits not kept", "as-is, models answer 429", "slb, as /advice says"]
    assert ways["slb, as /advice says"][3] == "300"
    assert goals["fullest 60 s of any model, of limit + bucket"].met
    assert goals["slots the bottleneck: in flight above the cap"].met


async def test_without_the_traces_it_stops_with_that_error(tmp_path: Path) -> None:
    code, out = await bench("quota", "--traces", str(tmp_path))
    assert code == 2
    assert "real traces" in out


async def test_where_no_folder_is_named_it_asks_for_one() -> None:
    code, out = await bench("quota")
    assert code == 2
    assert "--traces: name the folder" in out
