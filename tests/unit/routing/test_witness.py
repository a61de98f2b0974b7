"""What a face asks the judge while a reply is owed."""

import asyncio
import time

from slb.balance.pace import STOOD_STILL
from slb.routing.witness import ReplyWatch
from tests.support.waiting import eventually
from tests.support.witness import Recorder
from tests.unit.health.fleet import Routes


async def test_a_process_that_stood_still_reads_what_came_before_it_asks() -> None:
    fleet, recorder = Routes(), Recorder()
    fleet.members("/", 2)
    fleet.route().first_look = 0.01
    watch = ReplyWatch(recorder, time.monotonic)
    watch.owed(fleet.live(1), fleet.route(), time.monotonic())
    time.sleep(STOOD_STILL + 0.1)  # noqa: ASYNC251 -- the whole process stands still
    await asyncio.sleep(0)
    assert recorder.left == []
    await eventually(lambda: len(recorder.left) == 1, what="it asks after that")
    watch.ends()
