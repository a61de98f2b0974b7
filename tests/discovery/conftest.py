"""Fixtures: a Kubernetes API server of the tests' own, over TLS."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.certificates import Authority
from tests.support.kube_api import KubeApi


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
async def kube(authority: Authority) -> AsyncIterator[KubeApi]:
    async with KubeApi(authority.server("localhost")) as made:
        yield made
