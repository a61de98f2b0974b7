"""`bench simulate` with a small fleet."""

from pathlib import Path

import orjson
import pytest

from bench.lab.experiments import EXPERIMENTS
from tests.process.benches import bench

SMALL = ("--scale", "0.02")


async def test_the_same_seed_gives_the_same_figures(tmp_path: Path) -> None:
    runs = []
    for name in ("first", "again"):
        found = tmp_path / name
        code, out = await bench("simulate", *SMALL, "--json", str(found))
        assert code == 0, out
        runs.append(orjson.loads(found.read_bytes())["sections"])
    assert runs[0] == runs[1]
    assert len(runs[0]) == 2 * len(EXPERIMENTS)


@pytest.mark.parametrize("name", ["zones", "fade-in"])
async def test_a_goal_that_is_missed_is_an_error_where_goals_are_checked(name: str) -> None:
    """So small a fleet is too coarse for their goals."""
    code, out = await bench("simulate", name, *SMALL, "--check")
    assert "MISSED" in out
    assert code == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("tides",), "EXPERIMENTS: tides: known are fade-in, bounded, zones"),
        (("zones", "--scale", "0"), "Invalid value for '--scale'"),
        (("zones", "--json", "nowhere/found.json"), "--json: there is no folder nowhere"),
    ],
)
async def test_what_cannot_be_simulated_is_refused_by_name(arguments: tuple[str, ...], words: str) -> None:
    code, out = await bench("simulate", *arguments)
    assert code == 2
    assert words in out
