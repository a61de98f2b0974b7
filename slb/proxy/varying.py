"""Heads that differ only in a line or two: the trace, the request's id, the length of the body. These lines are cut
out before the head is looked up, and put into a copy of what was found: a look-up instead of a parse."""

import re
from collections.abc import Callable

from slb.proxy.headers import RequestHead
from slb.proxy.trace_context import TRACE
from slb.upstreams.head_cache import HeadCache

_LINE = re.compile(
    rb"\r\n(?:[Tt]raceparent:[ \t]*+(" + TRACE + rb")"
    rb"|[Cc]ontent-[Ll]ength:[ \t]*+([0-9]{1,18}+)"
    rb"|[Xx]-[Rr]equest-[Ii][Dd]:[ \t]*+([\x21-\x7e]{1,128}+))[ \t]*+(?=\r\n)"
)
"""Only well-formed lines; others are parsed with the rest of the head."""
_TRACE, _LENGTH, _REQUEST_ID = 1, 2, 3
_MOST = 4


class VaryingHeads:
    """`parse`: RequestHeads.parse, which reads a whole block."""

    def __init__(self, parse: Callable[[bytes], RequestHead], max_headers: int) -> None:
        self._parse = parse
        self._max_headers = max_headers
        self._common = HeadCache(parse)

    def parse(self, block: bytes) -> RequestHead:
        """Parse everything behind the request line, the empty line included. Raises Refused."""
        rest = b"\r\n" + block
        cut: list[tuple[int, bytes]] = []
        match = _LINE.search(rest)
        while match is not None and len(cut) < _MOST:
            cut.append((match.lastindex or 0, match[match.lastindex or 0]))
            start = match.start()
            rest = rest[:start] + rest[match.end() :]
            match = _LINE.search(rest, start)
        if not cut:
            return self._common[block]
        common = self._common[rest[2:]]
        if common.states is not None or common.upgrade or common.lines + len(cut) > self._max_headers:
            return self._parse(block)
        head = RequestHead()
        head.__dict__.update(common.__dict__)
        if all(_put(head, kind, value) for kind, value in cut):
            return head
        return self._parse(block)  # something is said twice


def _put(head: RequestHead, kind: int, value: bytes) -> bool:
    """Add one line to `head`. False where there was one before, so that the whole head must be parsed."""
    if kind == _TRACE:
        if head.trace is not None:
            return False
        head.trace = value
        head.fields += b"traceparent: %b\r\n" % value
    elif kind == _LENGTH:
        if head.framed:
            return False
        head.framed, head.length = True, int(value)
        head.fields += b"Content-Length: %d\r\n" % head.length
    else:
        if head.request_id:
            return False
        head.request_id = value
        head.fields += b"X-Request-Id: %b\r\n" % value
    return True
