"""The log of the tests' own process."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import structlog

from slb.observe import frequent


@contextmanager
def logging_as_before() -> Iterator[None]:
    """Whatever is set up inside, afterwards the log is whose it was."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    try:
        yield
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
        structlog.reset_defaults()
        frequent.write_to(None)
