"""Faults of slb's own, where others' turn comes behind the one that failed."""

import asyncio


def report(error: Exception, what: str) -> None:
    """Tell the event loop's handler, as it is told of callbacks that fail: it logs `what`, with the traceback."""
    asyncio.get_running_loop().call_exception_handler({"message": what, "exception": error})
