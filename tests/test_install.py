"""What `make` does on a machine that has Python, make and git, tried on a small project of the same form."""

import ast
import importlib
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib import metadata
from itertools import chain
from pathlib import Path

import pytest

from tests.support.waiting import patience, wait_until

ROOT = Path(__file__).parent.parent
STAMP = ".venv/installed-run"
PROJECT = """\
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
[project]
name = "tiny"
version = "1"
"""
BACKEND = """\
import zipfile

def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    name = "tiny-1-py3-none-any.whl"
    with zipfile.ZipFile(f"{wheel_directory}/{name}", "w") as wheel:
        wheel.writestr("tiny.pth", "")
        wheel.writestr("tiny-1.dist-info/METADATA", "Metadata-Version: 2.1\\nName: tiny\\nVersion: 1\\n")
        wheel.writestr("tiny-1.dist-info/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\n")
        wheel.writestr("tiny-1.dist-info/RECORD", "")
    return name
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Our Makefile and installer around a package that needs nothing from anywhere."""
    folder = tmp_path / "project"
    (folder / "tools").mkdir(parents=True)
    shutil.copy(ROOT / "Makefile", folder)
    shutil.copy(ROOT / "tools" / "install.py", folder / "tools")
    (folder / "pyproject.toml").write_text(PROJECT)
    (folder / "backend.py").write_text(BACKEND)
    for name in ("requirements.txt", "requirements-build.txt"):
        (folder / name).write_text("")
    return folder


def _make(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    command = ["make", *arguments]
    return subprocess.run(
        command, cwd=folder, env=_environ(), capture_output=True, text=True, timeout=patience(100), check=False
    )


def _environ() -> dict[str, str]:
    clean = ("PYTHON", "MAKE", "MFLAGS", "GNUMAKEFLAGS")
    return {name: value for name, value in os.environ.items() if not name.startswith(clean)}


def _install(folder: Path) -> "subprocess.CompletedProcess[str]":
    return _make(folder, STAMP, f"PYTHON={sys.executable}")


def _fake_python(folder: Path, script: str) -> str:
    fake = folder / "fake-python"
    fake.write_text(f"#!/bin/sh\n{script}\n")
    fake.chmod(0o755)
    return f"PYTHON={fake}"


def test_the_first_run_installs_and_prints_that_and_the_second_does_nothing(project: Path) -> None:
    first = _install(project)
    assert first.returncode == 0, first.stderr
    assert "making .venv with Python" in first.stdout
    assert "installing requirements.txt" in first.stdout
    second = _install(project)
    assert second.returncode == 0
    assert "slb:" not in second.stdout


def _pretend_venv(project: Path, **files: str) -> Path:
    """What looks like an environment an earlier run made, with `files` in it; its Python has pip."""
    venv = project / ".venv"
    (venv / "bin").mkdir(parents=True)
    (venv / "bin" / "python").symlink_to(sys.executable)
    for name, content in files.items():
        (venv / name).write_text(content)
    return venv


def test_an_environment_left_unfinished_is_made_anew(project: Path) -> None:
    venv = _pretend_venv(project, unfinished="", left_over="")
    (venv / "installed-run").touch()
    run = _install(project)
    assert run.returncode == 0, run.stderr
    assert "making it anew" in run.stdout
    assert (venv / "checkout").read_text() == f"{project}\n"
    assert not (venv / "left_over").exists()
    assert not (venv / "unfinished").exists()


def test_an_environment_is_used_again_only_where_it_was_made_and_finished(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project)
    monkeypatch.syspath_prepend(str(project / "tools"))
    usable = importlib.import_module("install").is_usable
    venv = _pretend_venv(project, checkout=f"{project}\n")
    assert usable(venv)
    (venv / "checkout").write_text("/another/folder\n")
    assert not usable(venv)
    (venv / "checkout").unlink()
    (venv / "unfinished").touch()
    assert not usable(venv)
    assert not usable(project / "nothing-here")


def test_two_at_once_in_a_fresh_folder_install_one_after_the_other(project: Path) -> None:
    for name in ("dev", "otlp"):
        (project / f"requirements-{name}.txt").write_text("")
    begun = project / "begun"
    gate = "import os, time\nopen('begun', 'w').close()\nwhile not os.path.exists('go'):\n    time.sleep(0.01)\n"
    (project / "backend.py").write_text(BACKEND.replace("def ", gate + "\ndef ", 1))
    with _making(project, STAMP) as first:
        wait_until(begun.exists)
        with _making(project, ".venv/installed-dev") as second:
            assert second.stdout is not None
            assert (
                second.stdout.readline() == "slb: another make is installing into .venv: waiting until it is done\n"
            )
            (project / "go").touch()
            output = [make.communicate(timeout=patience(100)) for make in (first, second)]
    assert (first.returncode, second.returncode) == (0, 0), output
    assert "anew" not in output[1][0]
    assert not (project / ".venv" / "unfinished").exists()
    assert (project / STAMP).exists()
    assert (project / ".venv" / "installed-dev").exists()


def _making(folder: Path, target: str) -> "subprocess.Popen[str]":
    command = ["make", target, f"PYTHON={sys.executable}"]
    return subprocess.Popen(
        command, cwd=folder, env=_environ(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def test_stamps_of_another_folder_do_not_count(project: Path) -> None:
    venv = _pretend_venv(project, checkout="/another/folder\n")
    (venv / "installed-run").touch()
    _make(project, "help")
    assert not (venv / "installed-run").exists()


def test_an_install_that_fails_leaves_no_stamp_and_prints_why(project: Path) -> None:
    (project / "requirements.txt").write_text("tiny==1\n")
    _pretend_venv(project)
    run = _install(project)
    assert run.returncode != 0
    assert "slb: pip failed" in run.stderr
    assert not (project / STAMP).exists()
    assert (project / ".venv" / "unfinished").exists()


def test_a_python_without_venv_is_answered_with_the_name_of_the_debian_package(project: Path) -> None:
    (project / "broken").mkdir()
    (project / "broken" / "ensurepip.py").write_text("raise ImportError\n")
    fake = _fake_python(project, f'PYTHONPATH="{project}/broken" exec "{sys.executable}" "$@"')
    run = _make(project, STAMP, fake)
    assert run.returncode != 0
    assert "python3-venv" in run.stderr
    assert not (project / ".venv").exists()


def test_a_python_that_is_too_old_is_named(project: Path) -> None:
    run = _make(project, STAMP, _fake_python(project, "exit 1"))
    assert run.returncode != 0
    assert re.search(r"fake-python is older than 3\.11", run.stderr)


def test_a_python_that_is_not_there_is_named(project: Path) -> None:
    run = _make(project, STAMP, "PYTHON=/nowhere/python3")
    assert run.returncode != 0
    assert "no /nowhere/python3 here" in run.stderr


def test_make_alone_prints_every_target_there_is(project: Path) -> None:
    run = _make(project)
    assert run.returncode == 0
    for target in ("run", "test", "lint", "bench", "e2e", "help"):
        assert re.search(rf"^  {target}\t", run.stdout, re.MULTILINE)


@pytest.mark.parametrize("file", sorted(ROOT.glob("requirements*.txt")), ids=lambda file: file.name)
def test_requirements_are_pinned_with_hashes_and_name_no_address(file: Path) -> None:
    text = file.read_text()
    assert "://" not in text
    assert "--index" not in text
    for entry in re.split(r"\n(?=[a-z])", re.sub(r"^#.*\n", "", text, flags=re.MULTILINE).strip()):
        assert re.match(r"[a-z0-9._-]+(\[[a-z,]+\])?==\S+", entry), entry[:80]
        assert "--hash=sha256:" in entry, entry[:80]


def test_one_package_is_not_reported_as_several(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(project / "tools"))
    news = importlib.import_module("install")._news
    for line, sentence in (("a-1", "unpacking 1 package"), ("a-1, b-2", "unpacking 2 packages")):
        assert list(news([f"Installing collected packages: {line}"])) == [sentence]


def test_every_package_the_project_asks_for_is_pinned() -> None:
    asked = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    groups = {"": asked["dependencies"], **asked["optional-dependencies"]}
    dev = "requirements-dev.txt"
    files = {"": "requirements.txt", "test": dev, "cloud-tasks": dev, "extproc": dev, "tui": dev}
    for extra, packages in groups.items():
        pinned = (ROOT / files.get(extra, f"requirements-{extra}.txt")).read_text()
        for package in packages:
            name = re.split(r"[^A-Za-z0-9-]", package)[0].lower()
            assert re.search(rf"^{name}==", pinned, re.MULTILINE), f"{name} is not pinned: run make lock"


def test_all_that_the_benches_import_is_pinned_for_them() -> None:
    text = (ROOT / "requirements-bench.txt").read_text()
    pinned = {_canonical(each) for each in re.findall(r"^([A-Za-z0-9._-]+)", text, re.MULTILINE)}
    elsewhere = ROOT / "bench" / "jobs" / "peers.py"  # has environments of its own
    modules, seen, wanted = {*(ROOT / "bench").rglob("*.py")} - {elsewhere}, set[Path](), set[str]()
    while unseen := modules - seen:
        for name in chain.from_iterable(map(_imports_of, unseen)):
            top, path = name.partition(".")[0], ROOT / name.replace(".", "/")
            if top in ("bench", "e2e", "tests", "tools"):
                modules |= {each for each in (path.with_suffix(".py"), path / "__init__.py") if each.is_file()}
            elif top not in sys.stdlib_module_names and top != "slb":
                wanted.add(top)
        seen |= unseen
    assert "trustme" in wanted  # by way of what the tests use too
    of = metadata.packages_distributions()
    assert [name for name in wanted if pinned.isdisjoint(map(_canonical, of.get(name, [name])))] == []


def _imports_of(module: Path) -> Iterator[str]:
    """Modules that it may import, and names in them."""
    for node in ast.walk(ast.parse(module.read_text())):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{each.name}" for each in node.names)


def _canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
