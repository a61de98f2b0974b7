"""Build the wheel of slb, the same bytes from the same files wherever that is done.

    python -m tools.dist [FOLDER]    # what `make dist` runs; FOLDER is dist unless it is given

It is built from a copy of what belongs into it, with modes and times that say nothing of this machine: what an
earlier build left behind cannot get in. The time is that of the last commit, or SOURCE_DATE_EPOCH. The commit
stands in `slb/commit.txt`, by which `slb --version` and the instances tell builds apart.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from slb.build import FILE, checked_out

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ("pyproject.toml", "README.md", "LICENSE", "slb", "deploy/man")
"""What the wheel is made of."""
_EARLIEST = 315_532_800  # 1980: no zip file has an earlier time


def main(arguments: Sequence[str]) -> int:
    folder = Path(arguments[0] if arguments else ROOT / "dist")
    wheel = build(folder, {**os.environ, "SOURCE_DATE_EPOCH": source_date(os.environ)})
    print(f"slb: {wheel}")
    return 0


def build(folder: Path, environ: Mapping[str, str]) -> Path:
    """Leave the wheel in `folder`; where it is. Raises CalledProcessError."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="slb-dist-") as made:
        copy, wheels = Path(made) / "slb", Path(made) / "wheels"
        _copy_sources(copy)
        if commit := checked_out(ROOT):
            (copy / "slb" / FILE).write_text(f"{commit}\n")
            (copy / "slb" / FILE).chmod(0o644)
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-cache-dir", "wheel", "--quiet"]
        command = [*pip, "--no-deps", "--no-index", "--no-build-isolation", "--wheel-dir", str(wheels), str(copy)]
        subprocess.run(command, env=dict(environ), umask=0o022, check=True)
        [wheel] = wheels.glob("*.whl")
        return Path(shutil.copy(wheel, folder))


def source_date(environ: Mapping[str, str]) -> str:
    """Seconds since the epoch that stand for the time of the build."""
    given = environ.get("SOURCE_DATE_EPOCH", "")
    if given:
        return given
    git = subprocess.run(
        ["git", "log", "-1", "--format=%ct"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return git.stdout.strip() or str(_EARLIEST)


def _copy_sources(copy: Path) -> None:
    ignored = shutil.ignore_patterns("__pycache__", "*.pyc", ".*")
    for name in SOURCES:
        source, there = ROOT / name, copy / name
        there.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, there, ignore=ignored, copy_function=shutil.copyfile)
        else:
            shutil.copyfile(source, there)
    for each in copy.rglob("*"):
        each.chmod(0o755 if each.is_dir() else 0o644)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
