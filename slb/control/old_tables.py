"""Tables of other Redis URLs that were not used for long: removed, or the data directory would only grow."""

import re
import stat
import time
from collections.abc import Callable
from pathlib import Path

import structlog

_OURS = re.compile(r"table-[0-9a-f]{12}\.json(\.[0-9]+\.[0-9]+)?")
"""As `disk.table_file` names them, and one that was being written when its writer was killed."""
UNUSED = 30 * 86400.0
"""Seconds. An instance touches its table every minute while Redis confirms it: one as old as this is of a URL that
is no longer used, or of a Redis that has been away for a month, whose instances have the table in memory."""

_log = structlog.get_logger()


def remove_old_tables(kept: Path, wall: Callable[[], float] = time.time) -> None:
    """Remove those beside the file `kept`. What cannot be looked at or removed is logged, and stays."""
    try:
        for path in [path for path in kept.parent.iterdir() if _OURS.fullmatch(path.name) and path != kept]:
            found = path.lstat()
            unused = wall() - found.st_mtime
            if stat.S_ISREG(found.st_mode) and unused > UNUSED:
                path.unlink(missing_ok=True)
                _log.info("disk_table_removed", file=str(path), unused_days=int(unused / 86400))
    except FileNotFoundError:  # no directory yet, or another instance was faster
        return
    except OSError as error:
        _log.warning("disk_table_not_removed", directory=str(kept.parent), error=str(error))
