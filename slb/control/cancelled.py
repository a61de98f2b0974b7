"""Cancellations that got lost. In Python 3.11 `asyncio.wait_for` swallows one that comes in the same turn as its
result, and redis-py sends every command through it: so each loop without an end asks here every time."""

import asyncio


def raise_if_cancelled() -> None:
    """Raises CancelledError where the running task has been cancelled."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError
