"""deploy/systemd/slb.service: systemd takes it, it exposes little, and slb takes what it is given there."""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.request import Request, urlopen

import pytest
from typer.testing import CliRunner

from slb.cli.entry import app
from slb.loading import load_settings
from tests.support.documents import ROOT
from tests.support.machine import Machine, machine, why_not
from tests.support.ports import closed_port
from tests.support.waiting import wait_until

UNIT = ROOT / "deploy" / "systemd" / "slb.service"
OPERATIONS = (ROOT / "docs" / "operations.md").read_text()
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
    file.write_text(with_program(UNIT.read_text()))
    return file


def with_program(text: str) -> str:
    return text.replace("/opt/slb/bin/slb", str(Path(sys.executable).with_name("slb")))


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


class Service:
    """`slb.service` on a machine, with the traffic's and the API's address."""

    def __init__(self, of: Machine, log: Path, listen: str, api: str, token: str) -> None:
        self.of, self._log, self.listen, self._api, self._token = of, log, listen, api, token

    def get(self, path: str) -> int:
        """The API's answer."""
        asked = Request(f"http://{self._api}{path}", headers={"Authorization": f"Bearer {self._token}"})
        with urlopen(asked) as answer:
            assert isinstance(answer.status, int)
            return answer.status

    @property
    def log(self) -> str:
        return self._log.read_text()


@pytest.fixture
def service(unit: Path, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Service]:
    """As the page has it, but for where the program and its settings are, and where the log goes. With a parameter
    that is true, with the drop-in that makes a takeover of a reload."""
    if reason := why_not():
        pytest.skip(reason)
    listen, api, token, log = closed_port(), closed_port(), "0123456789abcdef", tmp_path / "log"
    units = tmp_path / "units"
    units.mkdir()
    (units / "api-token").write_text(token)
    (units / "slb.toml").write_text(f'api = "{api}"\n{sample().replace("0.0.0.0:8080", listen)}')
    (units / "slb.service").write_text(unit.read_text().replace("/etc/slb", "/run/systemd/system"))
    # The program is in a checkout, which may be anywhere; a service may not look into /tmp and homes.
    here = ("ProtectHome=tmpfs", f"BindReadOnlyPaths={ROOT} {sys.base_prefix}", f"StandardError=append:{log}")
    (units / "slb.service.d").mkdir()
    (units / "slb.service.d" / "here.conf").write_text(
        "\n".join(("[Service]", *here, f"StandardOutput=append:{log}"))
    )
    [drop_in] = re.findall(r"^```ini\n(\[Service\].*?)^```$", OPERATIONS, re.MULTILINE | re.DOTALL)
    if getattr(request, "param", False):
        drop_in = with_program(drop_in).replace("/etc/slb", "/run/systemd/system")
        (units / "slb.service.d" / "takeover.conf").write_text(drop_in)
    with machine(units) as found:
        yield Service(found, log, listen, api, token)


def test_it_runs_under_a_systemd_with_all_that_the_unit_forbids(service: Service) -> None:
    systemd = service.of
    systemd.systemctl("start", "slb")  # Type=notify: it serves from now on
    assert service.get("/status") == 200
    assert "redis_up" in service.log
    assert f"http://{service.listen}" in systemd.shown("slb", "StatusText")

    systemd.kill(systemd.shown("slb", "MainPID"))
    wait_until(lambda: systemd.shown("slb", "NRestarts") == "1", what="a restart")
    wait_until(lambda: systemd.shown("slb", "ActiveState") == "active", what="a service that serves again")
    assert service.get("/status") == 200

    systemd.systemctl("reload", "slb")
    systemd.systemctl("stop", "slb")
    assert systemd.shown("slb", "Result") == "success"


@pytest.mark.parametrize("service", [True], indirect=True)
def test_with_the_drop_in_of_the_page_a_reload_is_a_takeover(service: Service) -> None:
    systemd = service.of
    systemd.systemctl("start", "slb")
    before = systemd.shown("slb", "MainPID")
    systemd.systemctl("reload", "slb")
    wait_until(lambda: systemd.shown("slb", "MainPID") not in (before, "0"), what="another process")
    wait_until(lambda: "took_over" in service.log, what="the takeover")
    assert service.get("/status") == 200
    assert (systemd.shown("slb", "ActiveState"), systemd.shown("slb", "NRestarts")) == ("active", "0")
    systemd.systemctl("stop", "slb")
    assert systemd.shown("slb", "Result") == "success"
