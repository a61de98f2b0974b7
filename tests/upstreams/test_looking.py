"""An upstream that has become silent is looked for, beside all connections that requests may have."""

import asyncio

from structlog.testing import capture_logs

from tests.proxy.harness import MakeOrigin, port_that_never_accepts, wait_for_end
from tests.support.waiting import eventually
from tests.upstreams.rig import MakeCaller


async def test_one_that_is_looked_for_has_room_for_a_request(callers: MakeCaller) -> None:
    caller = await callers(max_upstream_connections=1)
    open_ones: set[int] = set()
    listener, fillers, member = port_that_never_accepts()
    with capture_logs() as logs:
        pool = caller.pool(member)
        pool.was_silent()

        def is_out_of_reach() -> bool:
            open_ones.add(pool.open)
            return "upstream_out_of_reach" in [each["event"] for each in logs]

        await eventually(is_out_of_reach, what="nobody looks")
    assert open_ones == {0}
    for each in (listener, *fillers):
        each.close()


async def test_where_requests_have_all_connections_there_may_be_that_of_the_look_is_closed(
    callers: MakeCaller, origins: MakeOrigin
) -> None:
    caller, origin = await callers(max_upstream_connections=1), await origins(wait_for_end)
    pool = caller.pool(origin.member)
    call = asyncio.create_task(caller.call(pool))
    await eventually(lambda: len(origin.requests) == 1)
    pool.was_silent()
    await eventually(lambda: (origin.connections, origin.open) == (2, 1), what="nobody looks, or the look stays")
    assert (pool.open, pool.idle) == (1, [])
    call.cancel()
    await asyncio.wait([call])
