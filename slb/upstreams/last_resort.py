"""Faults of slb's own, in a loop over several items, which has to go on behind the one that failed."""

import asyncio


def report(error: Exception, what: str) -> None:
    """Call the event loop's handler, as for callbacks that fail: it logs `what`, with the traceback."""
    asyncio.get_running_loop().call_exception_handler({"message": what, "exception": error})
