"""Which build of slb this is: its version, and the commit that it was made of."""

import os
import subprocess
from functools import cache
from pathlib import Path

from slb import __version__

PACKAGE = Path(__file__).resolve().parent
FILE = "commit.txt"
"""In the package of a wheel or an image: the commit, as `git rev-parse --short` prints it. A checkout asks git."""
_DIGITS = 12
_WITHIN = 2.0
"""Seconds for git, which takes some milliseconds: no start waits for it longer."""


@cache
def build() -> str:
    """`0.1.0+g0af7651916cd`; the version alone where no commit is known. Git is asked once in a process."""
    return named(__version__, commit_of(PACKAGE))


def named(version: str, commit: str) -> str:
    """A version with a commit as its local part (PEP 440); alone where `commit` is no commit."""
    is_commit = 7 <= len(commit) <= 64 and set(commit) <= set("0123456789abcdef")
    return f"{version}+g{commit}" if is_commit else version


def commit_of(package: Path) -> str:
    """The commit that the package at this path was made of; empty where nothing tells it."""
    if commit := checked_out(package.parent):
        return commit
    try:
        return (package / FILE).read_text().strip()
    except (OSError, UnicodeDecodeError):
        return ""


def checked_out(root: Path) -> str:
    """The commit of the checkout at `root`; empty where there is none, or no git. A repository further up is not
    asked: an environment may be in one of somebody else."""
    if not (root / ".git").exists():
        return ""
    command = ["git", "-C", str(root), "rev-parse", f"--short={_DIGITS}", "HEAD"]
    environ = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        found = subprocess.run(
            command, env=environ, stdin=subprocess.DEVNULL, capture_output=True, timeout=_WITHIN, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return found.stdout.decode("ascii", "replace").strip()
