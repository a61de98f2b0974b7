"""The wheel: the same bytes each time, complete, and all that a machine needs that has nothing of this checkout."""

import json
import os
import re
import subprocess
import sys
import tomllib
import urllib.request
import zipfile
from pathlib import Path

import pytest

from slb.build import FILE, checked_out, named
from tests.packages.conftest import Installed, dist_environ
from tests.support.documents import ROOT, rows
from tests.support.waiting import patience
from tools import dist

INSTALL = (ROOT / "docs" / "install.md").read_text()
_IMPORT_ALL = """
import importlib, json, pkgutil, slb
failed = {}
for each in pkgutil.walk_packages(slb.__path__, "slb."):
    if not each.name.endswith("__main__"):
        try:
            importlib.import_module(each.name)
        except ImportError as error:
            failed[each.name] = error.name
print(json.dumps([slb.__file__, failed]))
"""


def tool(name: str) -> str:
    return str(Path(sys.executable).with_name(name))


def test_two_builds_are_the_same_to_the_byte(wheel: Path, tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        again = dist.build(tmp_path / "again", {**dist_environ(), "PYTHONHASHSEED": "7", "TZ": "Asia/Tokyo"})
    finally:
        os.umask(before)
    assert again.name == wheel.name
    assert again.read_bytes() == wheel.read_bytes()


def test_the_time_of_a_build_is_that_of_the_last_commit_unless_it_is_given() -> None:
    assert dist.source_date({"SOURCE_DATE_EPOCH": "12"}) == "12"
    assert int(dist.source_date({})) >= 315_532_800


def test_it_has_all_that_is_in_the_package_and_nothing_else(wheel: Path) -> None:
    git = subprocess.run(["git", "ls-files", "slb"], cwd=ROOT, capture_output=True, text=True, check=False)
    if git.returncode:
        pytest.skip("no git checkout")
    tracked = {name for name in git.stdout.splitlines() if (ROOT / name).exists()}
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("slb/")}
    untracked = packed - tracked - {f"slb/{FILE}"}
    assert tracked - packed == set()
    assert [name for name in untracked if not (ROOT / name).exists()] == []
    assert {"slb/py.typed", "slb/control/lua/ledger.lua"} <= packed


def test_package_indexes_would_take_it(wheel: Path) -> None:
    for command in ([tool("twine"), "check", "--strict", str(wheel)], [tool("check-wheel-contents"), str(wheel)]):
        run = subprocess.run(command, cwd=wheel.parent, capture_output=True, text=True, check=False)
        assert run.returncode == 0, run.stdout + run.stderr


def test_it_says_its_version_and_commit_and_brings_its_man_page(installed: Installed, tmp_path: Path) -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert installed.run(installed.slb, "--version", cwd=tmp_path) == f"slb {named(version, checked_out(ROOT))}\n"
    page = installed.folder / "share" / "man" / "man1" / "slb.1"
    assert page.read_text() == (ROOT / "deploy" / "man" / "slb.1").read_text()


def test_all_of_it_can_be_imported_but_what_needs_an_extra(installed: Installed, tmp_path: Path) -> None:
    file, failed = json.loads(installed.run(installed.python, "-c", _IMPORT_ALL, cwd=tmp_path))
    assert Path(file).is_relative_to(installed.folder), "the wheel's, and not this checkout's"
    missing = {name.partition(".")[0] for name in failed.values()}
    named = {word for row in rows(INSTALL, "extra") for word in re.findall(r"`(\w+)", row[2])}
    assert missing <= named, "a package that no extra names, and pyproject.toml does not ask for"


def test_it_serves_with_a_valkey_of_its_own(installed: Installed, tmp_path: Path) -> None:
    flags = ["--listen", "127.0.0.1:0", "--api", "127.0.0.1:0", "--data-dir", str(tmp_path / "data")]
    command = [str(installed.slb), "serve", *flags, "--end-with-stdin"]
    with subprocess.Popen(
        command, cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        try:
            api = json.loads(process.stdout.readline())["api"]
            with urllib.request.urlopen(f"{api}/healthz", timeout=patience(5)) as reply:
                assert json.load(reply) == {"status": "ok"}
        finally:
            process.stdin.close()
        assert process.wait() == 0


def test_each_extra_is_told_with_what_it_brings() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert {row[0] for row in rows(INSTALL, "extra")} == set(extras)
