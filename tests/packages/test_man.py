"""The man page slb(1)."""

import shutil
import subprocess

import pytest
import typer

from slb.cli.entry import app
from tools import man
from tools.reference import listed


def test_the_page_is_what_the_tool_writes() -> None:
    assert man.PAGE.read_text() == man.written(), "make man"


def _shown() -> str:
    if shutil.which("man") is None:
        pytest.skip("apt-get install man-db")
    command = ["man", "--warnings", "-l", str(man.PAGE)]
    environ = {"PATH": "/usr/bin:/bin", "MANWIDTH": "200", "LANG": "C.UTF-8"}
    run = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    assert (run.returncode, run.stderr) == (0, "")
    return run.stdout


def test_man_shows_every_command_and_option() -> None:
    text = _shown()
    for name, command in listed(typer.main.get_command(app), "slb"):
        assert f"   {name}\n" in text
        shown = [each for each in command.params if not getattr(each, "hidden", False)]
        options = [opt for each in shown for opt in each.opts if opt.startswith("--") and opt != "--help"]
        assert [option for option in options if option not in text] == []


@pytest.mark.skipif(shutil.which("mandoc") is None, reason="apt-get install mandoc")
def test_mandoc_finds_no_fault() -> None:
    run = subprocess.run(
        ["mandoc", "-T", "lint", "-W", "warning", man.PAGE], capture_output=True, text=True, check=False
    )
    assert (run.returncode, run.stdout) == (0, "")


def test_what_troff_would_take_for_its_own_is_escaped() -> None:
    assert list(man._text(".hidden a\\b. It's --so.")) == ["\\&.hidden a\\eb.", "It's \\-\\-so."]
