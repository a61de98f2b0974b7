"""What `make mutants` keeps of a run, how it goes on after one that was stopped, and what it makes of tests that
take too long."""

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tools.mutants import __main__ as command
from tools.mutants.edits import Mutant, mutants
from tools.mutants.results import Outcome, Results, table

ROOT = Path(__file__).parent.parent
SOURCE = b"x = 1\ny = 2\nz = 3\n"


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout of three changes, none of them tried."""
    (tmp_path / "slb").mkdir()
    (tmp_path / "slb" / "x.py").write_bytes(SOURCE)
    (tmp_path / "argued.toml").write_text("mutant = []")
    shutil.copy(ROOT / ".gitignore", tmp_path)
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    monkeypatch.setattr(command, "ROOT", tmp_path)
    monkeypatch.setattr(command, "_ARGUED", tmp_path / "argued.toml")
    return tmp_path


class Tried:
    """Stands for the tests of all changes: `found` says what becomes of one, by the line it leaves."""

    def __init__(self) -> None:
        self.found: dict[str, Callable[[float], Outcome]] = {}
        self.lines: list[str] = []
        self.passing: list[command.Tests] = []
        """These notice nothing."""

    def __call__(self, mutant: Mutant, _copies: object, tests: command.Tests, patience: float) -> Outcome:
        line = mutant.lines(SOURCE)[1]
        if tests in self.passing:
            return "survived"
        self.lines.append(line)
        return self.found[line](patience) if line in self.found else "caught"


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> Tried:
    made = Tried()
    monkeypatch.setattr(command, "outcome", made)
    return made


def run(*options: str) -> int:
    return command.main(["--workers", "1", *options, "slb/x.py"])


ALL = ["x = 2", "y = 3", "z = 4"]


def test_a_run_that_was_stopped_goes_on_where_it_was(
    tree: Path, tried: Tried, capsys: pytest.CaptureFixture[str]
) -> None:
    def stop(_: float) -> Outcome:
        raise RuntimeError("stopped")

    last = [each.lines(SOURCE)[1] for each in command.sample(["slb/x.py"], 1)][-1]
    tried.found[last] = stop
    with pytest.raises(RuntimeError, match="stopped"):
        run()
    assert sorted(tried.lines) == ALL
    del tried.found[last]
    tried.lines.clear()
    assert run() == 0
    assert tried.lines == [last]
    assert "2 of 3 are known" in capsys.readouterr().out
    assert [each.name for each in (tree / ".mutants").iterdir()] == ["all.jsonl"]


def test_what_was_found_is_forgotten_on_request_and_what_unit_tests_notice_is_kept_apart(
    tree: Path, tried: Tried
) -> None:
    for options in ((), ("--anew",), ("--near",)):
        tried.lines.clear()
        run(*options)
        assert sorted(tried.lines) == ALL, options
    tried.lines.clear()
    run("--near")
    assert tried.lines == []


def test_what_survived_is_shown_each_time_and_tried_again_once_a_test_has_changed(
    tree: Path, tried: Tried, capsys: pytest.CaptureFixture[str]
) -> None:
    tried.found["y = 3"] = lambda _: "survived"
    for expected in (set(ALL), set()):
        tried.lines.clear()
        assert run() == 1
        assert "-y = 2\n+y = 3" in capsys.readouterr().out
        assert set(tried.lines) == expected
    (tree / "tests").mkdir()
    (tree / "tests" / "test_y.py").write_text("def test_y(): ...")
    del tried.found["y = 3"]
    tried.lines.clear()
    assert run() == 0
    assert tried.lines == ["y = 3"]


def test_the_near_tests_are_asked_about_all_changes_and_the_others_about_what_is_left(
    tree: Path, tried: Tried, capsys: pytest.CaptureFixture[str]
) -> None:
    tried.passing = ["near"]
    assert run("--near") == 1
    assert tried.lines == []
    assert run() == 0
    assert sorted(tried.lines) == ALL
    assert "3 are not noticed by the near tests" in capsys.readouterr().out
    tried.lines, tried.passing = [], ["far"]
    assert run("--anew") == 0
    assert sorted(tried.lines) == ALL


def test_what_is_argued_is_not_tried_and_takes_its_place_in_the_sample(
    tree: Path, tried: Tried, capsys: pytest.CaptureFixture[str]
) -> None:
    entry = '[[mutant]]\npath = "slb/x.py"\nbefore = "y = 2"\nafter = "y = 3"\nwhy = "it is not read"\n'
    (tree / "argued.toml").write_text(entry)
    assert run("--count", "3") == 0
    assert sorted(tried.lines) == ["x = 2", "z = 4"]
    assert "2 noticed of 2, 100.0%" in capsys.readouterr().out


@pytest.mark.parametrize("late", [False, True])
def test_tests_that_take_too_long_are_given_more_time_after_all_others(
    late: bool, tree: Path, tried: Tried
) -> None:
    tried.found["y = 3"] = lambda patience: "timed out" if patience == 1 or late else "survived"
    assert run() == (0 if late else 1)
    assert (sorted(tried.lines[:3]), tried.lines[3]) == (ALL, "y = 3")


def test_a_line_that_was_not_written_whole_is_passed_over(tmp_path: Path) -> None:
    one, two, three = mutants("x.py", SOURCE)
    file = tmp_path / "all.jsonl"
    for each in (one, two):
        Results(file, "tree").add(each, SOURCE, "caught")
    file.write_bytes(file.read_bytes()[:-5])
    Results(file, "tree").add(three, SOURCE, "caught")
    results = Results(file, "tree")
    assert [results.of(each, SOURCE) for each in (one, two, three)] == ["caught", None, "caught"]


def test_a_result_is_that_of_one_source_and_other_than_caught_of_one_tree(tmp_path: Path) -> None:
    one, two, _ = mutants("x.py", SOURCE)
    file = tmp_path / "all.jsonl"
    Results(file, "tree").add(one, SOURCE, "caught")
    Results(file, "tree").add(two, SOURCE, "survived")
    same, other = Results(file, "tree"), Results(file, "other tree")
    assert [same.of(each, SOURCE) for each in (one, two)] == ["caught", "survived"]
    assert [other.of(each, SOURCE) for each in (one, two)] == ["caught", None]
    assert same.of(one, SOURCE + b"pass\n") is None


def test_the_summary_has_a_line_for_each_file_and_one_for_all() -> None:
    one, two, three = mutants("slb/long.py", SOURCE)
    (other,) = mutants("slb/a.py", b"x = 1\n")
    found: dict[Mutant, Outcome] = {one: "caught", two: "survived", three: "caught", other: "argued"}
    assert table(found).splitlines() == [
        "file        caught timed out argued stillborn survived",
        "slb/a.py         0         0      1         0        0",
        "slb/long.py      2         0      0         0        1",
        "all              2         0      1         0        1",
    ]
