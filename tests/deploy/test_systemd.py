"""deploy/systemd/slb.service: systemd takes it, it exposes little, and slb takes what it is given there."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from slb.cli.entry import app
from slb.loading import load_settings
from tests.support.documents import ROOT

UNIT = ROOT / "deploy" / "systemd" / "slb.service"
INSTALL = (ROOT / "docs" / "install.md").read_text()
ANALYZE = shutil.which("systemd-analyze")
_with_systemd = pytest.mark.skipif(ANALYZE is None, reason="apt-get install systemd")
_MOST = 2.0
"""Of 10, as `systemd-analyze security` counts."""


def sample() -> str:
    """The settings of the page."""
    [found] = re.findall(r"^```toml\n(.*?)^```$", INSTALL, re.MULTILINE | re.DOTALL)
    assert isinstance(found, str)
    return found


def settings_of(name: str) -> list[str]:
    return re.findall(rf"^{name}=(.*)$", UNIT.read_text(), re.MULTILINE)


@pytest.fixture
def unit(tmp_path: Path) -> Path:
    """With a program that is there."""
    file = tmp_path / "slb.service"
    file.write_text(UNIT.read_text().replace("/opt/slb/bin/slb", str(Path(sys.executable).with_name("slb"))))
    return file


def analyze(*words: str | Path) -> subprocess.CompletedProcess[str]:
    assert ANALYZE is not None
    return subprocess.run([ANALYZE, *words], capture_output=True, text=True, check=False)


@_with_systemd
def test_systemd_finds_no_fault(unit: Path) -> None:
    run = analyze("verify", "--man=no", unit)
    assert (run.returncode, run.stderr) == (0, "")


@_with_systemd
def test_it_exposes_little(unit: Path) -> None:
    run = analyze("security", "--offline=true", f"--threshold={round(_MOST * 10)}", unit)
    found = re.search(r"Overall exposure level for slb\.service: ([0-9.]+)", run.stdout)
    assert found is not None, run.stdout + run.stderr
    assert float(found[1]) <= _MOST
    assert run.returncode == 0
    assert f"gives it {found[1]} of 10" in INSTALL


def test_slb_takes_the_settings_that_the_unit_gives_it(tmp_path: Path) -> None:
    (tmp_path / "api-token").write_text("0123456789abcdef")
    (tmp_path / "slb.toml").write_text(sample().replace("0.0.0.0:8080", "127.0.0.1:0"))
    variables = dict(each.split("=", 1) for each in settings_of("Environment"))
    places = {"%d": str(tmp_path), "/var/lib/private": str(tmp_path)}
    for there, here in places.items():
        variables = {name: value.replace(there, here) for name, value in variables.items()}
    words = ["check-config", "--config", str(tmp_path / "slb.toml")]
    run = CliRunner().invoke(app, words, env={**variables, "SLB_API": "127.0.0.1:0"})
    assert run.exit_code == 0, run.output
    assert str(tmp_path / "slb") in run.output


def test_it_is_given_the_time_that_it_may_take_to_stop(tmp_path: Path) -> None:
    (tmp_path / "slb.toml").write_text(sample())
    [seconds] = settings_of("TimeoutStopSec")
    assert int(seconds) > load_settings({}, {}, tmp_path / "slb.toml").drain_timeout


def test_the_layout_of_the_page_is_that_of_the_unit() -> None:
    [start] = settings_of("ExecStart")
    program, *_, config = start.split()
    [credential] = settings_of("LoadCredential")
    for place in (program, config, credential.partition(":")[2], "/var/lib/private/slb"):
        assert f"`{place}`" in INSTALL
    assert settings_of("StateDirectory") == ["slb"]
    assert "SLB_DATA_DIR=/var/lib/private/slb" in settings_of("Environment")
