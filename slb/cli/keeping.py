"""`slb register --keep`: stays and renews until a signal comes, then deregisters."""

import asyncio
import logging
import sys
from collections.abc import Sequence

from slb.lifecycle import Stopping, unless_set
from slb.registration import Registration


def keep_registered(registrations: Sequence[Registration]) -> int:
    """Until SIGINT or SIGTERM; a second one ends it at once. The exit code: 1 where a registration may be left.
    Raises RegistrationRefused."""
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    return 0 if asyncio.run(_keep(registrations)) else 1


async def _keep(registrations: Sequence[Registration]) -> bool:
    """Whether all are deregistered."""
    stopping = Stopping()
    stopping.listen()
    try:
        await unless_set(stopping.requested, _keep_all(registrations))
    except ExceptionGroup as refused:
        raise refused.exceptions[0] from None
    finally:
        are_gone = await unless_set(stopping.hurried, _deregister_all(registrations))
    return bool(are_gone)


async def _keep_all(registrations: Sequence[Registration]) -> None:
    """Raises an ExceptionGroup of RegistrationRefused."""
    async with asyncio.TaskGroup() as group:
        for each in registrations:
            group.create_task(each.keep())


async def _deregister_all(registrations: Sequence[Registration]) -> bool:
    return all(await asyncio.gather(*(each.deregister() for each in registrations)))
