"""Fixtures shared by all tests, and how hypothesis runs: few examples each, many runs; no limits of time, since
machines are busy. A test that takes a fixture resets it itself, example by example.
"""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.support.certificates import Authority
from tests.support.logs import logging_as_before
from tests.support.valkey import Valkey

settings.register_profile(
    "slb",
    max_examples=60,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("slb")

# A shell lets a job in the background ignore SIGINT, and all that is started from there would ignore it too.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

LONGEST = (
    "tests/redis/test_quota_invariants.py",
    "tests/process/test_bench",
    "tests/proxy/test_judge.py",
    "tests/chaos/",
    "tests/test_install.py",
    "tests/proxy/test_fuzz.py",
    "tests/process/test_leases.py",
    "tests/redis/test_ledger_damage.py",
    "tests/unit/bench/test_scale.py",
    "tests/process/test_prometheus.py",
    "tests/test_e2e.py",
)
"""The beginnings of the longest tests' names, the longest first."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let each worker begin with some of the longest tests, after the shuffle: at the end of the run others would
    have nothing to do beside them. `--dist worksteal` gives each worker one part of the list, all of one length."""
    longest = sorted((item for item in items if _rank(item) < len(LONGEST)), key=_rank)
    others = [item for item in items if _rank(item) == len(LONGEST)]
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    count, items[:] = len(items), []
    for worker in range(workers):
        part = longest[worker::workers]
        fill = (count - len(items)) // (workers - worker) - len(part)
        items += part + others[: max(0, fill)]
        del others[: max(0, fill)]
    items += others


def _rank(item: pytest.Item) -> int:
    """The place in LONGEST; behind them all for other tests."""
    return next((place for place, each in enumerate(LONGEST) if item.nodeid.startswith(each)), len(LONGEST))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Of `-n auto`. More than cores: most tests wait most of the time."""
    return 2 * (os.cpu_count() or 1)


@pytest.fixture(autouse=True)
def log_given_back() -> Iterator[None]:
    """What a test sets up of this process's logging ends with it."""
    with logging_as_before():
        yield


@pytest.fixture
def valkeys() -> Iterator[Callable[..., Valkey]]:
    """Makes private Valkey servers: `valkeys(requirepass="x")`."""
    made: list[Valkey] = []

    def make(**options: str) -> Valkey:
        made.append(Valkey(**options))
        return made[-1]

    yield make
    for server in made:
        server.close()


@pytest.fixture
def valkey(valkeys: Callable[..., Valkey]) -> Valkey:
    """A private Valkey server, empty."""
    return valkeys()


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    """A private certificate authority, which its own clients trust."""
    return Authority(tmp_path)
