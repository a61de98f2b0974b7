"""Fixtures of the tests of policies."""

import pytest

from tests.unit.balance.served import Clock


@pytest.fixture
def clock() -> Clock:
    """One that only the test moves."""
    return Clock()
