"""Where a process has its listening sockets from: the one that runs, systemd, or the kernel."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

import structlog

from slb.config import Settings
from slb.given_sockets import GivenSockets, place_of
from slb.listening import AddressInUse, Sockets, wanted_places
from slb.systemd import passed_sockets
from slb.takeover.claim import Claim, Vanished, take_over

_PATIENCE = 5.0
_AGAIN = 0.05
"""Seconds for which a process that ends while its sockets are asked for may take to close them; between two tries.
"""

_log = structlog.get_logger("slb.takeover")


@contextmanager
def open_sockets(settings: Settings) -> Iterator[tuple[Sockets, Claim | None]]:
    """All sockets, closed at the end; with `takeover` those of the process that runs, if one does. Raises
    CannotListen, TakeoverRefused, ConfigError."""
    given = GivenSockets(passed_sockets(os.environ))
    sockets, claim = _taken(settings, given) if settings.takeover else (Sockets.bind(settings, given), None)
    _close_the_rest(given)
    with sockets:
        yield sockets, claim


def _taken(settings: Settings, given: GivenSockets) -> tuple[Sockets, Claim | None]:
    """One that ends just now may have its sockets for a moment longer: then all is tried again."""
    until, has_vanished = time.monotonic() + _PATIENCE, False
    while True:
        claim = None
        try:
            claim = take_over(settings.data_dir, wanted_places(settings))
            given.add(claim.sockets if claim else ())
            return Sockets.bind(settings, given), claim
        except (Vanished, AddressInUse) as error:
            has_vanished = has_vanished or isinstance(error, Vanished)
            if claim is not None:
                claim.close()
                raise
            if not has_vanished or time.monotonic() > until:
                hint = f"{error}; no process with data_dir {settings.data_dir} has it to be taken over"
                raise AddressInUse(hint) from None
            time.sleep(_AGAIN)


def _close_the_rest(given: GivenSockets) -> None:
    used = {place_of(each) for each in given.taken}
    for place in given.close_the_rest():
        if place not in used:  # else both the process that runs and systemd have given it
            _log.warning("socket_not_used", place=" ".join(map(str, place)))
