"""The tool behind `make mutants`: which changes it finds, and what it makes of their tests."""

import shutil
import textwrap
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pytest

from tests.support.waiting import eventually, patience
from tools.mutants import __main__ as command
from tools.mutants import run as pytest_run
from tools.mutants.edits import mutants
from tools.mutants.rooms import Stage, sources, stages

ROOT = Path(__file__).parent.parent
ARGUED = tomllib.loads((ROOT / "tools" / "mutants" / "argued.toml").read_text())["mutant"]


def changes(text: str) -> set[str]:
    """The line that each change of `text` leaves."""
    source = textwrap.dedent(text).encode()
    return {each.lines(source)[1] for each in mutants("x.py", source)}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a < b", {"(a <= b)", "(a >= b)"}),
        ("a >= b", {"(a > b)", "(a < b)"}),
        ("a == b", {"(a != b)"}),
        ("a is not b", {"(a is b)"}),
        ("a not in b", {"(a in b)"}),
        ("a < b == c", {"(a <= b == c)", "(a >= b == c)", "(a < b != c)"}),
        ("a and b", {"(a or b)", "(a)", "(b)"}),
        ("a or b or c", {"(a and b and c)", "(b or c)", "(a or c)", "(a or b)"}),
        ("not a", {"(a)"}),
        ("a if b else c", {"a if (not b) else c"}),
        ("a + b", {"(a - b)"}),
        ("'a' + b", set()),
        ("x = 1", {"x = 2"}),
        ("x = True", {"x = False"}),
        ("x = 0.5", set()),
        ("x = 'text'", set()),
        ("x = f(a, b)", {"x = f(b, a)"}),
        ("x = f(a, *b)", set()),
        ("x = min(a)", {"x = max(a)"}),
        ("f()", {"pass"}),
        ("await f()", {"pass"}),
        ("x -= y", {"pass"}),
        ("raise x", {"pass"}),
        ("del x", {"pass"}),
        ("@f(1)\ndef g(a: f(2) = 3) -> f(4): ...", {"def g(a: f(2) = 4) -> f(4): ..."}),
        ("if TYPE_CHECKING:\n    x = 1", set()),
        ("def f():\n    return x", {"return None"}),
        ("def f():\n    return None", set()),
        ("def f():\n    self.x = y\n    z = y", {"pass"}),
        ("def __init__(self):\n    self.x = y\n    super().__init__()", set()),
        ("def f():\n    x = 0.5", {"x = 1.5"}),
        ("x = f'{1 + 1}'", set()),
    ],
)
def test_the_changes_of_a_line(text: str, expected: set[str]) -> None:
    assert changes(text) == expected


def test_a_change_of_several_lines_replaces_them_and_nothing_else() -> None:
    source = "before = '\N{EURO SIGN}'\nif (a\n    and b): pass\nafter = x\n".encode()
    found = [each.applied(source).decode() for each in mutants("x.py", source) if each.kind == "and/or"]
    assert found == ["before = '\N{EURO SIGN}'\nif ((a or b)): pass\nafter = x\n"]


def test_a_change_is_shown_as_a_diff_and_named_by_its_first_line() -> None:
    source = b"x = y\nz = 1\nx = y\n"
    (change,) = mutants("x.py", source)
    assert change.diff(source) == " x = y\n-z = 1\n+z = 2\n x = y"
    assert (change.line, change.lines(source)) == (2, ("z = 1", "z = 2"))


def test_what_is_added_elsewhere_moves_no_change_in_the_order_of_a_seed() -> None:
    before, after = b"x = 1\n", b"y = 5\nz = a < b\nx = 1\n"
    (one,) = mutants("x.py", before)
    (other,) = [each for each in mutants("x.py", after) if each.line == 3]
    assert one.rank(7, before) == other.rank(7, after)
    assert one.rank(7, before) != one.rank(8, before)


def test_each_change_of_the_code_is_still_python_and_the_order_is_that_of_the_seed() -> None:
    path = "slb/proxy/disconnect_watcher.py"
    source = (ROOT / path).read_bytes()
    first, again, other = (list(command.sample([path], seed)) for seed in (1, 1, 2))
    assert first == again != other
    assert set(first) == set(other)
    for each in first:
        compile(each.applied(source), path, "exec")


def test_what_is_broken_is_there_and_its_own_tests_come_first() -> None:
    assert {"slb/balance/ring.py", "slb/proxy/reader.py", "slb/control/history.py"} < set(sources(ROOT))
    own, near, far = stages(ROOT, "slb/balance/ring.py")
    assert own.files == ("tests/unit/balance/test_ring.py",)
    assert "tests/unit/balance/test_ring_set.py" in near.files
    assert "tests/proxy/test_ring.py" in far.files
    assert stages(ROOT, "slb/balance/ring.py", is_near=True) == [own, near]
    assert not set(own.files) & set(near.files)


def test_what_takes_longest_comes_last() -> None:
    *_, far = stages(ROOT, "slb/upstreams/pool.py")
    slow, quick = (far.files.index(f"tests/proxy/test_{each}.py") for each in ("draining", "upstream_connections"))
    assert slow > quick


def small_tree(folder: Path) -> Path:
    """A program of three functions: each test file runs one, or one way through it, and an import the third."""
    two = "def two(x):\n    if not x:\n        return max(\n            x, 4\n        )\n    return 6\n"
    files = {
        "slb/__init__.py": "",
        "slb/x.py": f"def one():\n    return 2\n{two}def new():\n    return 10\nx = new()\n",
        "tests/test_one.py": "from slb.x import *\ndef test_it():\n    assert (one(), two(1)) == (2, 6)\n",
        "tests/test_two.py": "from slb.x import *\ndef test_it():\n    assert two(0) == 4\n",
    }
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    shutil.copytree(ROOT / "tools" / "mutants", folder / "tools" / "mutants")
    return folder


def test_only_the_files_that_run_a_statement_are_asked_about_a_change_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = small_tree(tmp_path)
    monkeypatch.setattr(command, "ROOT", tree)
    copies, both = command.Copies(tmp_path, workers=0), Stage(("tests/test_one.py", "tests/test_two.py"))
    found = {
        each.line: copies.asked(each, both, tree)[0].files
        for each in mutants("slb/x.py", (tree / "slb" / "x.py").read_bytes())
        if each.kind in ("constant", "negation")
    }
    one, two = both.files
    assert found == {2: (one,), 4: (one, two), 6: (two,), 8: (one,), 10: (one, two)}


@pytest.mark.parametrize(("files", "processes"), [(1, 0), (2, 2)])
def test_few_files_are_run_by_one_process(
    files: int, processes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "run", lambda *_: 0)
    tree = small_tree(tmp_path)
    monkeypatch.setattr(command, "ROOT", tree)
    (change,) = (each for each in mutants("slb/x.py", b"x = 1"))
    some = ("tests/test_one.py", "tests/test_two.py")[:files]
    asked, _ = command.Copies(tmp_path, workers=0).asked(change, Stage(some, 2), tree)
    assert asked == Stage(some, processes)


@pytest.mark.parametrize("processes", [0, 2])
def test_where_not_all_that_tests_run_has_been_seen_they_are_always_asked(
    processes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = small_tree(tmp_path)
    with (tree / "tests" / "test_two.py").open("a") as file:
        file.write("import subprocess\n")
    monkeypatch.setattr(command, "ROOT", tree)
    change = next(each for each in mutants("slb/x.py", (tree / "slb" / "x.py").read_bytes()) if each.line == 2)
    both = Stage(("tests/test_one.py", "tests/test_two.py"), processes)
    assert command.Copies(tmp_path, workers=0).asked(change, both, tree)[0].files == both.files


def test_with_nothing_broken_each_file_is_run_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run: list[tuple[str, ...]] = []

    def passes(_copy: Path, stage: Stage, *_: object) -> int:
        run.append(stage.files)
        return 0

    monkeypatch.setattr(command, "run", passes)
    tree = small_tree(tmp_path)
    (change, *_) = mutants("slb/x.py", (tree / "slb" / "x.py").read_bytes())
    monkeypatch.setattr(command, "ROOT", tree)
    copies, one, two = command.Copies(tmp_path, workers=0), "tests/test_one.py", "tests/test_two.py"
    for files in ((one,), (one, two), (two,)):
        copies.asked(change, Stage(files), tree)
    assert run == [(one,), (two,)]


def test_what_one_worker_learns_of_tests_another_waits_for_and_learns_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = "tests/test_one.py", "tests/test_two.py"
    run: list[tuple[str, ...]] = []
    first_runs, second_runs = Event(), Event()

    def passes(_copy: Path, stage: Stage, *_: object) -> int:
        run.append(stage.files)
        if stage.files == (one,):
            first_runs.set()
            second_runs.wait()
        else:
            second_runs.set()
        return 0

    monkeypatch.setattr(command, "run", passes)
    tree = small_tree(tmp_path)
    (change, *_) = mutants("slb/x.py", (tree / "slb" / "x.py").read_bytes())
    copies = command.Copies(tmp_path, workers=0)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(copies.asked, change, Stage((one,)), tree)
        first_runs.wait()
        copies.asked(change, Stage((one, two)), tree)
        first.result()
    assert run == [(one,), (two,)]


async def test_a_test_that_cannot_be_ended_ends_its_process_and_what_it_has_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SIGALRM is how pytest-timeout would end it."""
    (tmp_path / "test_x.py").write_text(
        "import signal, subprocess, time\n"
        "def test_it():\n"
        "    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})\n"
        "    started = subprocess.Popen(['sleep', '1000'])\n"
        "    open('started', 'w').write(str(started.pid))\n"
        "    time.sleep(1000)\n"
    )
    monkeypatch.setattr(pytest_run, "_LONGEST_TEST", 1)
    assert pytest_run.run(tmp_path, Stage(("test_x.py",)), patience(60)) == 1
    started = Path("/proc", (tmp_path / "started").read_text(), "cmdline")
    await eventually(lambda: not started.exists() or not started.read_bytes())


@pytest.mark.parametrize("code", [1, None])
def test_tests_that_fail_or_hang_with_nothing_broken_end_the_run(
    code: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "run", lambda *_: code)
    (change, *_) = mutants("slb/x.py", b"x = 1")
    with pytest.raises(RuntimeError, match="a b"):
        command.Copies(tmp_path, workers=0).asked(change, Stage(("a", "b")), tmp_path)


@pytest.mark.parametrize("entry", ARGUED, ids=lambda entry: f"{entry['path']}: {entry['after']}")
def test_a_change_that_is_argued_can_be_made_and_has_its_reason(entry: dict[str, str]) -> None:
    """Else the code has moved on, and the argument is about nothing."""
    source = (ROOT / entry["path"]).read_bytes()
    assert (entry["before"], entry["after"]) in {each.lines(source) for each in mutants(entry["path"], source)}
    assert entry["why"]
