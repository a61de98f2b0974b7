"""Signals that ask a process to stop, and background tasks that must not die quietly."""

import asyncio
import logging
import os
import signal

import pytest

from slb.lifecycle import Stopping, Tasks, first_of, unless_set
from tests.support.waiting import soon


async def test_the_first_signal_asks_to_stop_and_the_second_to_stop_now() -> None:
    stopping = Stopping()
    stopping.listen()
    try:
        os.kill(os.getpid(), signal.SIGTERM)
        await soon(stopping.requested.wait(), 5)
        assert not stopping.hurried.is_set()
        os.kill(os.getpid(), signal.SIGINT)
        await soon(stopping.hurried.wait(), 5)
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().remove_signal_handler(number)


async def test_a_background_task_that_fails_is_logged_with_its_name_and_noticed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def fail() -> None:
        raise RuntimeError("no more")

    tasks = Tasks()
    tasks.start("watcher", fail())
    await soon(tasks.failed.wait(), 5)
    (record,) = caplog.records
    assert record.levelno == logging.CRITICAL
    assert "'watcher'" in record.getMessage()
    assert "no more" in str(record.exc_info)


async def test_the_end_of_a_task_is_passed_to_a_callback_instead_of_the_log() -> None:
    ended: list[tuple[str, BaseException | None]] = []
    tasks = Tasks(lambda name, error: ended.append((name, error)))
    tasks.start("watcher", asyncio.sleep(0))
    await soon(tasks.failed.wait(), 5)
    assert ended == [("watcher", None)]


async def test_a_background_task_that_just_ends_is_a_failure_too() -> None:
    tasks = Tasks()
    tasks.start("heartbeat", asyncio.sleep(0))
    await soon(tasks.failed.wait(), 5)


async def test_tasks_that_are_stopped_have_not_failed(caplog: pytest.LogCaptureFixture) -> None:
    tasks = Tasks()
    tasks.start("watcher", asyncio.sleep(3600))
    await tasks.stop()
    await asyncio.sleep(0)
    assert not tasks.failed.is_set()
    assert not caplog.records


async def test_first_of_returns_with_the_first_event() -> None:
    one, other = asyncio.Event(), asyncio.Event()
    waiting = asyncio.create_task(first_of(one, other))
    await asyncio.sleep(0)
    assert not waiting.done()
    other.set()
    await soon(waiting, 5)


async def test_work_is_done_unless_the_event_comes_first_and_has_ended_then() -> None:
    event, ended = asyncio.Event(), asyncio.Event()

    async def work() -> str:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return "never"

    assert await unless_set(event, asyncio.sleep(0, "done")) == "done"
    doing = asyncio.create_task(unless_set(event, work()))
    await asyncio.sleep(0)
    event.set()
    assert await doing is None
    assert ended.is_set()
