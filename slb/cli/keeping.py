"""`slb register --keep`: stays, and renews, until it is told to stop."""

import asyncio
import logging
import sys
from collections.abc import Sequence

from slb.lifecycle import Stopping
from slb.registration import Registration


def keep_registered(registrations: Sequence[Registration]) -> None:
    """Until SIGINT or SIGTERM; then deregister. Raises RegistrationRefused where an slb refuses the first time."""
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    asyncio.run(_keep(registrations))


async def _keep(registrations: Sequence[Registration]) -> None:
    stopping = Stopping()
    stopping.listen()
    leaving = asyncio.create_task(stopping.requested.wait())
    keeping = [asyncio.create_task(each.keep()) for each in registrations]
    await asyncio.wait([leaving, *keeping], return_when=asyncio.FIRST_COMPLETED)
    for task in (leaving, *keeping):
        task.cancel()
    ended = await asyncio.gather(*keeping, return_exceptions=True)
    await asyncio.gather(*(each.deregister() for each in registrations))
    for error in ended:
        if isinstance(error, Exception):
            raise error
