"""`python -m tests.chaos`: what it prints, what it refuses, and that it leaves nothing behind."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.processes import MARK, marked
from tests.chaos.failovers import KINDS
from tests.support.waiting import eventually

ROOT = Path(__file__).parents[2]


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """All that is started with this in its environment has to be gone in the end."""
    yield tmp_path
    assert marked(tmp_path) == []


def started(home: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.chaos", *arguments],
        cwd=ROOT,
        env={**os.environ, MARK: str(home)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(home: Path, *arguments: str) -> tuple[int, str, str]:
    process = started(home, *arguments)
    out, err = process.communicate()
    return process.returncode, out, err


def test_help_names_every_fault(home: Path) -> None:
    code, out, _ = ended(home, "--help")
    words = "".join(out.replace("│", " ").split())  # broken over lines anywhere
    assert code == 0
    assert all(name in words for kind in KINDS.values() for name in kind.faults)


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (("--faults", "flood"), "flood"),
        (("--kinds", "one", "--faults", "kill-master"), "kill-master"),
        (("--kinds", "three"), "three"),
        (("--redis", "/no/server"), "/no/server"),
        (("--kinds", "one", "--redis", "/bin/true"), "start"),
        (("--logs", "/no/logs"), "/no/logs"),
    ],
)
def test_what_it_does_not_know_is_refused(home: Path, arguments: tuple[str, str], what: str) -> None:
    code, _, err = ended(home, *arguments)
    assert code == 2
    assert what in err


def test_a_round_prints_its_seed_and_what_was_found(home: Path) -> None:
    words = "--minutes 0 --seed 5 --warm-up 0 --instances 2 --kinds one --faults flush-scripts"
    code, out, err = ended(home, *words.split())
    first, *_, last = out.splitlines()
    assert code in {0, 1}, err  # a busy machine is a fault too: only what is printed of it is looked at here
    assert "seed 5" in first
    assert "done: flush-scripts 1" in out
    assert "Redis silent" in out
    assert last.endswith("violations")
    assert (last != "0 violations") == bool(code)


async def test_ctrl_c_ends_everything_that_was_started(home: Path) -> None:
    process = started(home, "--minutes", "9", "--instances", "2", "--kinds", "one")
    assert process.stdout is not None
    assert "seed 1" in process.stdout.readline()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate()
    assert process.returncode == 130
    assert "interrupted" in err
    assert "violations" in out
    await eventually(lambda: marked(home) == [])
