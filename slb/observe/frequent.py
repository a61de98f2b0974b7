"""Events that may come a thousand times a second: lines of the log like any other, but made by one call, and many
are written at once, as access lines are."""

import logging
from typing import Any

import structlog

from slb.observe.log import AccessLog, masked

_log = structlog.get_logger()
_lines: AccessLog | None = None


def write_to(lines: AccessLog | None) -> None:
    """Frequent events become lines of this from now on; None: they go the way of all others."""
    global _lines
    _lines = lines


def info(event: str, error: str | None = None, **fields: Any) -> None:
    """An event of level info. `error` may have been written by somebody else: secrets in it are masked."""
    if _lines is None:
        _log.info(event, error=error, **fields)
    elif logging.getLogger().isEnabledFor(logging.INFO):
        _lines.write(event=event, level="info", error=error and masked(error), **fields)
