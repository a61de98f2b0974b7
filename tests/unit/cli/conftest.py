"""`slb` run inside the tests' process."""

from pathlib import Path

import pytest

from slb.cli import main


@pytest.fixture
def clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No settings of the user that runs the tests."""
    for name in ("SLB_CONFIG", "SLB_REDIS_URL", "SLB_LISTEN", "SLB_API_TOKEN", "SLB_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))


@pytest.fixture
def any_ports(clean_environment: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """On this machine the usual ones may be taken."""
    for name in ("SLB_LISTEN", "SLB_API"):
        monkeypatch.setenv(name, "127.0.0.1:0")


class Slb:
    """Runs `slb` in this process."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch = monkeypatch
        self._capsys = capsys

    def __call__(self, *arguments: str) -> tuple[int, str, str]:
        """Exit code, stdout, stderr."""
        self._monkeypatch.setattr("sys.argv", ["slb", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        code = ended.value.code
        assert code is None or isinstance(code, int)
        printed = self._capsys.readouterr()
        return code or 0, printed.out, printed.err


@pytest.fixture
def slb(clean_environment: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Slb:
    return Slb(monkeypatch, capsys)
