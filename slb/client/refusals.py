"""What the library raises by itself. Each is an `aiohttp.ClientError` too, so that code written for a ClientSession
catches them where it catches everything else."""

from aiohttp import ClientError

from slb.errors import Refused


class CallRefused(Refused, ClientError):
    """A call that was not sent: `reason` is the name, `detail` one sentence for a person."""


class SessionClosed(RuntimeError, ClientError):
    """The session is not open: it has been closed, which ends the calls that are out and those that wait, or
    `async with` has not been entered yet."""
