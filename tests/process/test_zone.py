"""`slb serve --zone`: which upstreams an instance keeps its requests to."""

from collections import Counter
from typing import Any

import orjson
import pytest

from tests.process.commands import Commands, Serving
from tests.support.valkey import Valkey
from tests.support.waiting import within

SETTINGS: dict[Any, Any] = {
    "policy": "consistent_hash",
    "ring_debounce": "0",
    "load_signal": "off",
    "zone_affinity": "1",
    "zone_delay": "0",
    "zone_fade_in": "1ms",
    "zone_min_upstreams": "1",
}
KEYS = 100


async def served(slb: Commands, serving: Serving) -> Counter[str]:
    """How many of KEYS each upstream has served."""
    found: Counter[str] = Counter()
    for number in range(KEYS):
        status, text = await slb.get(f"{serving.url}/p/{number}")
        assert status == 200
        found[orjson.loads(text)["upstream"]] += 1
    return found


async def until_kept(slb: Commands, serving: Serving, zone: str) -> None:
    """Until its requests stay in `zone`, but for the few that measure the others."""
    found: Counter[str] = Counter()
    try:
        async with within(20):
            while found[zone] < 0.9 * KEYS:
                found = await served(slb, serving)
    except TimeoutError:
        raise AssertionError(f"not kept in {zone}, but served by {found}") from None


@pytest.mark.parametrize("workers", ["1", "2"])
async def test_each_instance_keeps_its_requests_in_the_zone_it_was_started_for(
    slb: Commands, valkey: Valkey, workers: str
) -> None:
    valkey.admin.hset("slb:route:/p", mapping=SETTINGS)
    for zone in ("a", "b"):
        _, member = await slb.upstream(zone)
        valkey.admin.hset(f"slb:upstream:{member}", "zone", zone)
        valkey.admin.sadd("slb_p", member)
    for zone in ("a", "b"):
        arguments = "--zone", zone, "--workers", workers, "--name", zone
        serving = await slb.until_ready(await slb.serve(*arguments, redis=valkey.url))
        await until_kept(slb, serving, zone)
        assert await serving.process.stop() == 0
