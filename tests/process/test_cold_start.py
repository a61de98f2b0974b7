"""An instance that starts far from its Redis."""

from tests.process.commands import Commands
from tests.support.relay import Relay
from tests.support.valkey import Valkey

ROUND_TRIP = 0.15
BUDGET = "250ms"
"""Enough for one round trip, and not for the two of a lane that is being opened."""


async def test_its_first_request_finds_the_way_to_the_ledger_open(slb: Commands, valkey: Valkey) -> None:
    _, member = await slb.upstream("a")
    valkey.admin.sadd("slb_p", member)
    valkey.admin.hset("slb:route:/p", mapping={"max_inflight": "1", "when_unsure": "refuse"})
    async with Relay(valkey.process.socket, ROUND_TRIP / 2) as relay:
        serving = await slb.serve(redis=relay.url, env={"SLB_REDIS_BUDGET": BUDGET})
        assert (await slb.get(f"{serving.url}/p"))[0] == 200
        pool = (await slb.json(f"{serving.api}/status"))["ledger"]["pools"]["/p"]
        assert (pool["mode"], pool["holders"]) == ("shared", 1)
        await slb.close()
