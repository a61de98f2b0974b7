"""The name of this instance to other hops, and the ids it gives to requests."""

from random import Random


class Identity:
    """`via` is this instance's name in Via: a request that carries it has looped. `own_line`: the Via line of its
    requests, by the minor version that the client speaks."""

    __slots__ = ("_number", "_prefix", "_trace", "own_line", "via")

    def __init__(self, rng: Random) -> None:
        self._prefix = b"%020x" % rng.getrandbits(80)
        self._number = 0
        self.via = b"slb-%08x" % rng.getrandbits(32)
        self.samples(True)
        self.own_line = {minor: b"Via: 1.%d %b\r\n" % (minor, self.via) for minor in (0, 1)}

    def new_request_id(self) -> bytes:
        """32 hexadecimal digits: a random prefix of this process and a counter."""
        self._number += 1
        return b"%b%012x" % (self._prefix, self._number)

    def samples(self, wanted: bool) -> None:
        """Whether traces that are begun here, and are not recorded, have the flag that asks upstreams for spans."""
        self._trace = b"traceparent: 00-%%b-%%016x-%02x\r\n" % wanted

    def new_trace(self, request_id: bytes) -> bytes:
        """A traceparent line (W3C Trace Context). Its trace id is `request_id`, one of `new_request_id`,
        so that logs and traces can be joined."""
        return self._trace % (request_id, self._number)
