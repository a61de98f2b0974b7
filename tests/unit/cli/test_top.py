"""`slb top` where it has no screen to draw on."""

from collections.abc import Callable
from typing import Any

import pytest

from slb.cli import top
from tests.unit.cli.conftest import Slb


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """With what `slb status` was called."""
    calls: list[dict[str, Any]] = []
    status: Callable[..., None] = lambda **options: calls.append(options)  # noqa: E731
    monkeypatch.setattr(top, "status", status)
    return calls


def test_without_its_extra_it_says_so_and_is_status_watch(
    slb: Slb, watched: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(top, "find_spec", lambda name: None)
    code, out, err = slb("top", "--url", "http://10.0.0.1:8081", "--token", "secret")
    assert (code, out) == (0, "")
    assert "pip install 'slb[tui]'" in err
    assert watched == [{"watch": True, "url": "http://10.0.0.1:8081", "token": "secret", "ca": None}]


def test_into_a_pipe_it_is_refused_and_names_what_prints_there(slb: Slb, watched: list[dict[str, Any]]) -> None:
    code, out, err = slb("top")
    assert (code, out, watched) == (2, "", [])
    assert "slb status --watch" in err
