"""What the library raises itself: `aiohttp.ClientError`s too, so code written for a ClientSession catches them."""

from aiohttp import ClientError

from slb.errors import Refused


class CallRefused(Refused, ClientError):
    """A call that was not sent: `reason.name` is the code a user looks up, `detail` one sentence for a person."""

    @property
    def status(self) -> int:
        """The status that slb would answer, under the name that aiohttp's errors have."""
        return self.reason.status


class SessionClosed(RuntimeError, ClientError):
    """The session is not open: it is closed, which ends all calls, or `async with` has not been entered yet."""
