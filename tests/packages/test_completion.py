"""Completion in the shell, as `slb --install-completion` sets it up."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.packages.conftest import Installed

pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="no bash here")

_ASK = """
eval "$(_SLB_COMPLETE=source_bash slb)"
COMP_WORDS=({words}) COMP_CWORD={last}
$(complete -p slb | sed -n 's/.*-F \\([^ ]*\\) .*/\\1/p') slb
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


def completed(installed: Installed, folder: Path, *words: str) -> list[str]:
    """What bash would offer for the last word."""
    quoted = " ".join(f"'{word}'" for word in ("slb", *words))
    environ = {"PATH": f"{installed.folder / 'bin'}:/usr/bin:/bin", "HOME": str(folder)}
    script = _ASK.format(words=quoted, last=len(words))
    run = subprocess.run(["bash", "-c", script], env=environ, capture_output=True, text=True, check=True)
    return sorted(run.stdout.split())


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (("un",), ["undrain"]),
        (("route", ""), ["delete", "set", "unset"]),
        (("jobs", "dlq", "r"), ["retry"]),
        (("serve", "--work"), ["--workers"]),
    ],
)
def test_bash_completes_commands_and_options(
    installed: Installed, tmp_path: Path, words: tuple[str, ...], wanted: list[str]
) -> None:
    assert completed(installed, tmp_path, *words) == wanted


def test_the_command_installs_it_for_the_shell_that_it_is_typed_in(installed: Installed, tmp_path: Path) -> None:
    environ = {"PATH": f"{installed.folder / 'bin'}:/usr/bin:/bin", "HOME": str(tmp_path), "SHELL": "/bin/bash"}
    command = ["bash", "-c", "slb --install-completion; exit $?"]
    run = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    assert (tmp_path / ".bash_completions" / "slb.sh").exists()
