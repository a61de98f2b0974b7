"""Cancellations that got lost. In Python 3.11 `asyncio.wait_for` swallows one that comes in the same turn as its
result, and redis-py sends every command through it: so each loop without an end asks here every time."""

import asyncio
from collections.abc import Coroutine
from typing import Any


def raise_if_cancelled() -> None:
    """Raises CancelledError where the running task has been cancelled."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


async def errors_once_one_ends(*parts: Coroutine[Any, Any, None]) -> list[BaseException]:
    """Run all until one ends or fails, cancel the others, and wait for their ends. Their errors, in their order. No
    TaskGroup: in Python 3.11 that leaves its own cancellation counted, and `raise_if_cancelled` would raise."""
    tasks = [asyncio.create_task(part) for part in parts]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    return [error for task in tasks if not task.cancelled() and (error := task.exception()) is not None]
