"""`slb register --keep`: stays and renews until a signal comes, then deregisters."""

import asyncio
import logging
import sys
from collections.abc import Sequence

from slb.lifecycle import Stopping, unless_set
from slb.registration import Registration, RegistrationRefused


def keep_registered(registrations: Sequence[Registration]) -> int:
    """Renew until SIGINT or SIGTERM, then deregister; a second signal ends it at once. The exit code: 1 where a
    registration may be left. Raises RegistrationRefused."""
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    return 0 if asyncio.run(_keep(registrations)) else 1


async def _keep(registrations: Sequence[Registration]) -> bool:
    """Whether all are deregistered. Where one is refused, those that existed before this command stay for good:
    another client may have registered them. Raises RegistrationRefused."""
    stopping = Stopping()
    stopping.listen()
    leaving, staying = registrations, list[Registration]()
    try:
        await unless_set(stopping.requested, _register_and_renew(registrations))
    except RegistrationRefused:
        staying = [each for each in registrations if each.was_there]
        leaving = [each for each in registrations if not each.was_there]
        raise
    finally:
        are_gone = await unless_set(stopping.hurried, _end(leaving, staying))
    return bool(are_gone)


async def _register_and_renew(registrations: Sequence[Registration]) -> None:
    """Raises RegistrationRefused, once all have their answer: each is known to be registered by then, or is not."""
    refusals = await asyncio.gather(*(each.register() for each in registrations), return_exceptions=True)
    for refusal in refusals:
        if refusal is not None:
            raise refusal
    await asyncio.gather(*(each.renew() for each in registrations))


async def _end(leaving: Sequence[Registration], staying: Sequence[Registration]) -> bool:
    await asyncio.gather(*(each.leave_standing() for each in staying))
    return all(await asyncio.gather(*(each.deregister() for each in leaving)))
