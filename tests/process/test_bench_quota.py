"""The quota lab as its command, on a small backlog."""

import asyncio
import sys
from pathlib import Path
from random import Random

import orjson

from bench.gpu.traces import TRACES

REPOSITORY = Path(__file__).parents[2]


def write_traces(folder: Path, lines: int) -> None:
    """In the form of the real ones."""
    rng = Random(1)
    for name in TRACES.values():
        rows = [
            f"2023-11-16 18:17:03.9799600,{rng.randrange(50, 2000)},{rng.randrange(1, 300)}" for _ in range(lines)
        ]
        (folder / name).write_text("\n".join(["TIMESTAMP,ContextTokens,GeneratedTokens", *rows]))


async def bench(*words: str) -> tuple[int | None, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "bench",
        *words,
        cwd=REPOSITORY,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        out, _ = await asyncio.wait_for(process.communicate(), 100)
    finally:
        if process.returncode is None:
            process.terminate()  # it ends what it has started
            await process.wait()
    return process.returncode, out.decode()


async def test_the_lab_drains_in_simulated_and_in_real_time_and_keeps_what_it_measured(tmp_path: Path) -> None:
    write_traces(tmp_path, 150)
    found = tmp_path / "found.json"
    words = ["--traces", str(tmp_path), "--prompts", "300", "--real", "120", "--factor", "60", "--json", str(found)]
    code, out = await bench("quota", *words)
    assert code == 0, out
    sections = orjson.loads(found.read_bytes())["sections"]
    ways = {title: way for section in sections for title, way in section.get("ways", {}).items()}
    assert {"as-is, limits not kept", "as-is, models answer 429", "slb, 3 real routers"} <= ways.keys()
    goals = {goal["what"]: goal["met"] for section in sections for goal in section.get("figures", [])}
    assert goals["fullest 60 s of any model, of limit + bucket"] is True
    assert sum(model["calls"] for model in ways["slb, 3 real routers"]["models"]) == 120


async def test_without_the_traces_it_stops_and_says_so(tmp_path: Path) -> None:
    code, out = await bench("quota", "--traces", str(tmp_path))
    assert code == 2
    assert "real traces" in out
