"""The wheel, and an environment that has it and what it depends on, and nothing else."""

import re
import subprocess
import sys
import sysconfig
import venv
from importlib import metadata
from pathlib import Path

import pytest

from tests.support.documents import ROOT
from tools import dist

SOURCE_DATE = "1700000000"


class Installed:
    """A virtual environment with the wheel."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.python = folder / "bin" / "python"
        self.slb = folder / "bin" / "slb"

    def run(self, *command: str | Path, cwd: Path) -> str:
        """A command's output; it has to end well."""
        return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=True).stdout


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return dist.build(tmp_path_factory.mktemp("wheel"), dist_environ())


@pytest.fixture(scope="session")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """pip puts the wheel there; dependencies are linked from this environment: no index is asked."""
    found = Installed(tmp_path_factory.mktemp("installed") / "venv")
    venv.create(found.folder, symlinks=True, with_pip=False)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(found.python)]
    subprocess.run([*pip, "install", "--quiet", "--no-deps", "--no-index", str(wheel)], check=True)
    linked = tmp_path_factory.mktemp("dependencies")
    _link_dependencies(linked)
    [site] = found.folder.glob("lib/python*/site-packages")
    (site / "dependencies.pth").write_text(f"{linked}\n")
    return found


def dist_environ() -> dict[str, str]:
    """What a build is given: nothing of this machine but where programs are."""
    return {"PATH": "/usr/bin:/bin", "SOURCE_DATE_EPOCH": SOURCE_DATE}


def _link_dependencies(folder: Path) -> None:
    """Links to all that requirements.txt pins, and to nothing else of this environment."""
    site = Path(sysconfig.get_path("purelib"))
    for name in re.findall(
        r"^([a-z0-9.-]+)(?:\[[^]]*\])?==", (ROOT / "requirements.txt").read_text(), re.MULTILINE
    ):
        try:
            files = metadata.distribution(name).files or ()
        except metadata.PackageNotFoundError:  # of another system, or an older Python
            continue
        for top in {file.parts[0] for file in files} - {"..", "__pycache__"}:
            if not (folder / top).is_symlink():
                (folder / top).symlink_to(site / top)
