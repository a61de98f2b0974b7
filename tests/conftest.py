"""Fixtures shared by all tests."""

from collections.abc import Callable, Iterator

import pytest

from tests.support.valkey import Valkey


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
