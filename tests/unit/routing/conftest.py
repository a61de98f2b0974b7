"""An empty mirror."""

import pytest

from slb.routing.mirror import Mirror
from tests.unit.routing.mirror_rig import make_mirror


@pytest.fixture
def mirror() -> Mirror:
    return make_mirror()
