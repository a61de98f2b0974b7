"""`slb export`, `slb diff` and `slb apply` where what they meet is not of their own version."""

from pathlib import Path

import pytest

from tests.unit.cli.conftest import Server, Slb

WRITTEN = {
    "routes": {"/p": {"settings": {"novel": 1, "retries": 2}, "faults": [], "members": {"10.0.0.1:80": "static"}}},
    "upstreams": {},
}


def test_a_setting_of_a_later_version_is_left_out_of_the_export_and_left_alone(
    slb: Slb, server: Server, tmp_path: Path
) -> None:
    server.answer = WRITTEN
    code, out, err = slb("export", "--only", "routes")
    assert (code, err) == (
        0,
        "slb: /p: left out, as it cannot be used: novel: there is no route setting of this name\n",
    )
    assert "novel" not in out
    (tmp_path / "fleet.toml").write_text(out)
    assert slb("apply", "--prune", "-f", str(tmp_path / "fleet.toml"))[:2] == (0, "0 changes\n")
    assert server.asked == ["GET /written", "GET /written"]


def test_a_model_of_a_later_version_is_refused(slb: Slb, server: Server) -> None:
    server.answer = {"models": {"flux": {"novel": 1}}}
    code, out, err = slb("export", "--only", "models")
    assert (code, out) == (1, "")
    assert err.startswith("slb: models.flux.novel: what is set there, this version of slb does not know: ")


@pytest.mark.parametrize("part", ["routes", "models", "limits"])
def test_what_has_no_such_answer_is_no_slb_of_this_version(slb: Slb, server: Server, part: str) -> None:
    server.answer = {"other": 1}
    code, out, err = slb("export", "--only", part)
    assert (code, out) == (1, "")
    assert "is no slb, or one of another version: its answer has no" in err


def test_a_file_that_is_no_file_or_too_large_is_refused(slb: Slb, server: Server, tmp_path: Path) -> None:
    large = tmp_path / "large.toml"
    with large.open("wb") as file:
        file.truncate((16 << 20) + 1)
    assert slb("apply", "-f", str(large)) == (1, "", f"slb: {large}: it has more than {16 << 20} bytes\n")
    assert slb("diff", "-f", "/dev/null") == (2, "", "slb: /dev/null: it is not a regular file\n")
    assert server.asked == []


@pytest.mark.parametrize("command", ["diff", "apply"])
def test_a_file_is_named_in_either_way_and_once(slb: Slb, server: Server, tmp_path: Path, command: str) -> None:
    file, wrong = tmp_path / "fleet.toml", 2
    file.write_text("[routes]")
    server.answer = {"routes": {}, "upstreams": {}}
    assert slb(command, str(file)) == slb(command, "-f", str(file))
    assert slb(command) == (wrong, "", f"slb: no file is named: slb {command} -f FILE; - is standard input\n")
    assert slb(command, "a", "-f", "b") == (wrong, "", "slb: one file at a time: 'a' and 'b' are two\n")


def test_where_the_export_fails_its_error_is_all_that_is_said(slb: Slb, server: Server) -> None:
    server.answer = {"endpoints": [{"path": "/written"}]}  # without models and limits, and there are no routes
    code, out, err = slb("export")
    assert (code, out, err.count("\n"), "its answer has no 'routes'" in err) == (1, "", 1, True), err
