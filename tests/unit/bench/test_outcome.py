"""What is refused before anything is measured, and the names that options take."""

from pathlib import Path

import pytest
import typer

from bench import chart
from bench.outcome import check_folder, chosen


def test_names_are_taken_in_the_order_they_are_known() -> None:
    assert chosen("--only", "b, a", ["a", "b", "c"]) == ["a", "b"]
    assert chosen("--only", "", "ab") == chosen("--only", "all", "ab") == ["a", "b"]


def test_a_name_nobody_has_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit):
        chosen("--only", "envoy,evnoy", ["envoy", "slb"])
    assert "evnoy: known are envoy, slb" in capsys.readouterr().err


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    check_folder("--json", None)
    check_folder("--json", tmp_path)
    with pytest.raises(typer.Exit):
        check_folder("--json", tmp_path / "none")
    assert f"--json: there is no folder {tmp_path / 'none'}" in capsys.readouterr().err


def test_without_matplotlib_one_line_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(chart, "find_spec", lambda name: None)
    chart.check_pictures("--png", None)
    with pytest.raises(typer.Exit):
        chart.check_pictures("--png", tmp_path)
    assert capsys.readouterr().err == "bench: --png: pictures need matplotlib: pip install -e '.[bench]'\n"
