"""Fixtures shared by all tests, and how hypothesis runs: few examples each, many runs; no limits of time, since
machines are busy. A test that takes a fixture resets it itself, example by example.
"""

import os
import signal
from collections.abc import Callable, Iterator

import pytest
from hypothesis import HealthCheck, settings

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

LONGEST = ("tests/chaos/", "tests/proxy/test_fuzz.py", "tests/proxy/test_judge.py")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest come first, after the shuffle: at the end other workers would have nothing to do beside them."""
    items.sort(key=lambda item: not item.nodeid.startswith(LONGEST))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Of `-n auto`. More than cores: most tests wait most of the time."""
    return 2 * (os.cpu_count() or 1)


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
