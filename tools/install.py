"""Make a virtual environment and install pinned requirements and slb itself into it, saying so.

    python tools/install.py VENV REQUIREMENTS...

For `make`, on a machine with Python, make and git and nothing else: only the standard library is used here. A file
inside the environment marks it as unfinished from its first moment to its last, so that an interrupted run is
noticed by the next one, which makes the environment anew. A lock on a file beside the environment keeps another run
waiting meanwhile: to it, what is being made would look like what was left unfinished.
"""

import fcntl
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

_UNFINISHED = "unfinished"
_HOME = "checkout"
"""Holds the folder the environment was made in."""
_NEWS_EVERY = 5.0
"""Seconds between two lines about a long step."""


class InstallError(Exception):
    """Why the environment cannot be made: one line for a person."""


def main(arguments: Sequence[str]) -> int:
    if len(arguments) < 2:
        print("usage: python tools/install.py VENV REQUIREMENTS...", file=sys.stderr)
        return 2
    venv, requirements = Path(arguments[0]), arguments[1:]
    try:
        with _alone(venv):
            install(venv, requirements)
    except InstallError as error:
        print(f"slb: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"slb: interrupted; the next run makes {venv} anew", file=sys.stderr)
        return 130
    return 0


def install(venv: Path, requirements: Sequence[str]) -> None:
    """Leave `venv` with everything `requirements` pin and with this checkout as the package slb."""
    if not is_usable(venv):
        _make(venv)
    python = _python(venv)
    marker = venv / _UNFINISHED
    marker.touch()
    for file in requirements:
        _say(f"installing {file}, each package checked against its hash")
        _pip(python, "--require-hashes", "-r", file)
    _say("installing slb itself, linked to this checkout")
    _pip(python, "--no-deps", "--no-build-isolation", "-e", ".")
    (venv / _HOME).write_text(os.getcwd() + "\n")
    marker.unlink()
    _say(f"done: {venv}/bin/slb")


@contextmanager
def _alone(venv: Path) -> Iterator[None]:
    """While no other run works on `venv`. The kernel gives the lock back, however a run ends."""
    with venv.with_name(f"{venv.name}.lock").open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _say(f"another make is installing into {venv}: waiting until it is done")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def is_usable(venv: Path) -> bool:
    """Whether an earlier run ended well, in this folder, and its Python still starts."""
    home, python = venv / _HOME, _python(venv)
    moved = home.exists() and home.read_text().strip() != os.getcwd()
    if moved or not python.exists() or (venv / _UNFINISHED).exists():
        return False
    return subprocess.run([python, "-m", "pip", "--version"], capture_output=True, check=False).returncode == 0


def _python(venv: Path) -> Path:
    return venv / "bin" / "python"


def _make(venv: Path) -> None:
    _require_ensurepip()
    if venv.exists():
        _say(f"{venv} is unfinished, broken or from another folder: making it anew")
        shutil.rmtree(venv)
    _say(f"making {venv} with Python {sys.version.split()[0]}")
    venv.mkdir(parents=True)
    (venv / _UNFINISHED).touch()
    made = subprocess.run([sys.executable, "-m", "venv", str(venv)], check=False)
    if made.returncode:
        raise InstallError(f"`{sys.executable} -m venv {venv}` failed with exit code {made.returncode}")


def _require_ensurepip() -> None:
    """Debian and Ubuntu ship Python without what fills a virtual environment."""
    try:
        import ensurepip  # noqa: F401
    except ImportError:
        raise InstallError(
            "this Python cannot make virtual environments: install Debian's package python3-venv "
            "(apt-get install python3-venv), then run make again"
        ) from None


def _pip(python: Path, *arguments: str) -> None:
    command = [str(python), "-m", "pip", "install", "--no-input", "--disable-pip-version-check", *arguments]
    environ = {**os.environ, "PIP_PROGRESS_BAR": "off", "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environ) as pip:
        assert pip.stdout is not None
        for news in _news(pip.stdout):
            _say(f"  {news}")
    if pip.returncode:
        raise InstallError(f"pip failed with exit code {pip.returncode}; what it said stands above")


def _news(lines: Iterator[str] | Sequence[str]) -> Iterator[str]:
    """A line every few seconds out of the many pip prints."""
    collected, last = 0, time.monotonic()
    for line in lines:
        if line.startswith("Installing collected packages"):
            count = line.count(",") + 1
            yield f"unpacking {count} package{'s' * (count > 1)}"
        elif line.startswith("Collecting "):
            collected += 1
            if time.monotonic() - last >= _NEWS_EVERY:
                last = time.monotonic()
                yield f"{collected} packages so far, now {line.split()[1]}"


def _say(text: str) -> None:
    print(f"slb: {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
