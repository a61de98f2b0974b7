"""`bench before` as its users run it, as small as can be."""

import shutil
from pathlib import Path

import orjson
import pytest

from bench.figures.before import ratio_of
from tests.process.benches import REPOSITORY, bench

needs_git = pytest.mark.skipif(
    not (REPOSITORY / ".git").exists() or shutil.which("git") is None, reason="no git checkout"
)


@needs_git
@pytest.mark.skipif(shutil.which("wrk") is None, reason="wrk sends the load")
async def test_both_are_measured_in_turn(tmp_path: Path) -> None:
    found = tmp_path / "found.json"
    code, out = await bench("before", "HEAD", "--cases", "repeat", "--bursts", "2", "--json", str(found))
    assert code == 0, out
    (section,) = orjson.loads(found.read_bytes())["sections"]
    assert [figure["what"] for figure in section["figures"]] == [
        "CPU a request, HEAD",
        "CPU a request, this tree",
        "their ratio",
    ]
    assert all(figure["value"] > 0 for figure in section["figures"])


@needs_git
async def test_a_commit_that_there_is_not_is_one_line() -> None:
    code, out = await bench("before", "nowhere")
    assert code == 1
    assert "bench before: " in out
    assert "nowhere" in out


def test_the_ratio_is_that_of_each_turn_and_as_sure_as_they_are_alike() -> None:
    ratio, error = ratio_of([(10.0, 11.0), (20.0, 22.0), (40.0, 44.0)])
    assert ratio == pytest.approx(1.1)
    assert error == pytest.approx(0.0, abs=1e-12)
    ratio, error = ratio_of([(10.0, 10.0), (10.0, 12.1)])
    assert ratio == pytest.approx(1.1)
    assert error == pytest.approx(0.095, abs=0.001)
