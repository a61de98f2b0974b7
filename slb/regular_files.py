"""Files of the operator: settings, secrets, certificates, lists of upstreams."""

import errno
import os
import stat
from pathlib import Path

LONGEST = 16 << 20
"""Bytes of a file: the most tokens there may be, with all they may have, are less."""


def read_file(file: Path) -> bytes:
    """Raises OSError, also for what is no file: a pipe would be waited for, and a device may have no end."""
    with open(file, "rb", opener=_without_waiting) as reading:
        if not stat.S_ISREG(os.fstat(reading.fileno()).st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file", str(file))
        content = reading.read(LONGEST + 1)
    if len(content) > LONGEST:
        raise OSError(errno.EFBIG, f"it has more than {LONGEST} bytes", str(file))
    return content


def _without_waiting(file: str, flags: int) -> int:
    return os.open(file, flags | os.O_NONBLOCK)
