"""Which callbacks are due, and until when."""

from tests.redis.jobs_rig import Begin


async def test_a_callback_is_due_until_it_is_answered(begin: Begin) -> None:
    here = begin()
    await here.submit("one", calls_back=1)
    assert await here.lane.due_callbacks(60, 10) == []
    await here.lane.finish(await here.claim(), "complete", b'"r"')
    (due,) = await here.lane.due_callbacks(60, 10)
    assert (due.id, due.state, due.result) == ("one", "completed", '"r"')
    assert await here.lane.due_callbacks(60, 10) == []
    assert await here.lane.callback_sent(due, "status 500", again=0.0)
    (due,) = await here.lane.due_callbacks(60, 10)
    assert (due.callback_attempts, due.callback_error) == (1, "status 500")
    assert await here.lane.callback_sent(due)
    assert not await here.lane.callback_sent(due)
    assert (await here.lane.stats()).callbacks == 0


async def test_a_callback_of_an_earlier_end_says_nothing_of_the_next_one(begin: Begin) -> None:
    here = begin()
    await here.submit("one", calls_back=1)
    await here.lane.finish(await here.claim(), "give_up", b"out of memory")
    (before,) = await here.lane.due_callbacks(60, 10)
    assert await here.lane.callback_sent(before, "status 500", again=60)
    await here.lane.revive("one")
    await here.lane.finish(await here.claim(), "complete", b"1")
    assert not await here.lane.callback_sent(before)
    (due,) = await here.lane.due_callbacks(60, 10)
    assert (due.state, due.callback_attempts, due.callback_error) == ("completed", 0, "")


async def test_a_callback_that_is_put_off_was_not_tried(begin: Begin) -> None:
    here = begin()
    await here.submit("one", calls_back=1)
    await here.lane.finish(await here.claim(), "complete", b"1")
    (due,) = await here.lane.due_callbacks(60, 10)
    await here.lane.put_off_callback("one", 0.0)
    (again,) = await here.lane.due_callbacks(60, 10)
    assert (again, again.callback_attempts) == (due, 0)
    await here.lane.callback_sent(due)
    await here.lane.put_off_callback("one", 0.0)
    assert await here.lane.due_callbacks(60, 10) == [], "it was delivered meanwhile"
