"""The quota router where Redis's clock is set to another time."""

from typing import Any

import pytest

from tests.redis.quota_instances import Script
from tests.support.valkey import Valkey

HOUR = 3_600_000


@pytest.fixture
def script(valkey: Valkey) -> Script:
    """With a model of a thousand tokens a second, and nothing in its bucket."""
    script = Script(valkey)
    script.run(["put", "a", 60_000, 50, 1, 1_000, 0], ["schedule", "t0", 1_000, 0, "", False])
    return script


def wrong_for_an_hour(script: Script) -> None:
    """The clock leaps, and is set back."""
    script.ahead = HOUR
    script.run()
    script.ahead = 0
    script.run()


def test_a_clock_that_is_set_back_does_not_stop_the_refill(script: Script) -> None:
    wrong_for_an_hour(script)
    assert script.run(["schedule", "t1", 1_000, 0, "", False])[0][0] == "admitted"
    _, wait, _ = script.run(["schedule", "t2", 500, 0, "k", False])[0]
    assert wait <= 700
    script.ahead += wait
    assert script.run(["schedule", "t2", 500, 0, "k", False])[0][0] == "admitted"


def test_a_clock_that_is_set_back_again_and_again_gives_out_nothing(script: Script) -> None:
    for script.ahead in range(0, -1_000 * HOUR, -100 * HOUR):
        assert script.run(["schedule", "t1", 900, 0, "", False])[0][0] == "wait"


def test_leases_lapse_after_it_and_what_was_reclaimed_bears_the_clocks_time(script: Script, valkey: Valkey) -> None:
    wrong_for_an_hour(script)
    for script.ahead in range(0, 160_000, 2_000):
        script.run()
    ((_, listed),) = script.run(["abandoned", "", 10])
    assert [row[0] for row in listed] == ["t0"]
    admin: Any = valkey.admin
    assert 0 <= 1_000 * admin.time()[0] + script.ahead - int(listed[0][3]) < 60_000
