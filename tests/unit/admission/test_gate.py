"""Who decides at a gate, by what its lane says of Redis."""

from collections import Counter
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest

from slb.admission.gate import Gate
from slb.observe.metrics import Metrics
from tests.unit.routing.mirror_rig import make_mirror


@pytest.mark.parametrize(
    ("ready", "settling", "late", "mode"),
    [
        (False, False, False, "local"),
        (False, True, True, "local"),
        (True, True, False, "settling"),
        (True, True, True, "settling"),
        (True, False, True, "late"),
        (True, False, False, "shared"),
    ],
)
async def test_its_mode_is_the_worst_its_lane_tells(ready: bool, settling: bool, late: bool, mode: str) -> None:
    lane = SimpleNamespace(ready=ready, settling=settling, late=late, held=Counter())
    gate = Gate("/p", lambda pool, changed: cast("Any", lane), make_mirror(), Metrics(), lambda: 1, Random(1))
    assert gate.mode == mode
