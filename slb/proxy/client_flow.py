"""Reading from a client's connection: what holds it up, and that the client may leave meanwhile."""

from slb.proxy.disconnect_watcher import DisconnectWatcher
from slb.upstreams.flow import TURN_OVER, Flow

TURN = 0.0001
"""Seconds for what is done at once with what was read. A request of others takes some five turns."""

# Why reading is paused, besides a turn that is over.
UPLOAD = 2
PIPELINE = 4


class ClientFlow(Flow):
    """That of a client, which may leave while its connection is not read: `disconnects` watches for that."""

    __slots__ = ("_disconnects",)

    def __init__(self, disconnects: DisconnectWatcher) -> None:
        Flow.__init__(self)
        self._disconnects = disconnects

    def hold_upload(self) -> None:
        """Stop reading: the upstream takes no more of the body."""
        self._hold(UPLOAD)

    def upload_may_go_on(self) -> None:
        if self._paused:
            self._release(UPLOAD)

    @property
    def upload_is_held(self) -> bool:
        """Whether the body waits for the upstream."""
        return bool(self._paused & UPLOAD)

    def _hold(self, why: int) -> None:
        self._pause(why)
        if not self.transport.is_closing():
            self._disconnects.watch(self.transport)

    def _release(self, why: int) -> None:
        self._resume(why)
        if not self._paused & ~TURN_OVER:
            self._disconnects.forget(self.transport)
