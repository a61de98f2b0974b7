"""One way to hear of a channel, for all who do."""

import asyncio

from slb.control.subscription import hear
from tests.support.following import Follower
from tests.support.valkey import Valkey
from tests.support.waiting import eventually


async def test_who_hears_a_channel_hears_it_again_after_the_connection_was_cut(valkey: Valkey) -> None:
    said: list[tuple[str, str]] = []
    async with Follower(valkey.url) as follower:
        hearing = asyncio.create_task(
            hear(follower.connection, "slb:test", lambda channel, text: said.append((channel, text)), retry=0.01)
        )

        def is_heard(text: str) -> bool:
            return bool(valkey.admin.publish("slb:test", text))

        await eventually(lambda: is_heard("one"))
        await eventually(lambda: said == [("slb:test", "one")])
        valkey.admin.client_kill_filter(_type="pubsub")
        await eventually(lambda: is_heard("two"))
        await eventually(lambda: said[1:] == [("slb:test", "two")])
        hearing.cancel()
        await asyncio.wait([hearing])
        assert hearing.cancelled()
        await eventually(lambda: valkey.admin.pubsub_numsub("slb:test") == [("slb:test", 0)], what="closed")
