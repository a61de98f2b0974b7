"""What a traceparent and a tracestate may look like (W3C Trace Context, 3.2 and 3.3). Where the first is not valid,
both are dropped; a tracestate that is not valid is dropped alone."""

import re
from collections.abc import Iterable

TRACE = rb"(?!ff)[0-9a-f]{2}-(?!0{32}-)[0-9a-f]{32}-(?!0{16}-)[0-9a-f]{16}-[0-9a-f]{2}"
"""A traceparent without what a version of the future may add: no version ff, no trace or parent of zeros."""
_TRACEPARENT = re.compile(rb"(?!00.{54})" + TRACE + rb"(?:-[\x21-\x7e]*+)?")
"""Version 00 has nothing behind its flags; later ones may, and what that is they are not asked."""

_MOST_MEMBERS = 32
_MEMBER = re.compile(
    rb"([a-z][_0-9a-z\-*/]{0,255}+|[0-9a-z][_0-9a-z\-*/]{0,240}+@[a-z][_0-9a-z\-*/]{0,13}+)"
    rb"=[\x20-\x2b\x2d-\x3c\x3e-\x7e]{1,256}+"
)


def is_traceparent(value: bytes) -> bool:
    """Whether `value`, stripped, may be passed on."""
    return _TRACEPARENT.fullmatch(value) is not None


def is_tracestate(values: Iterable[bytes]) -> bool:
    """Whether the values of all tracestate fields together are a list of different keys with values, at most 32
    members, empty ones included."""
    members = b",".join(values).split(b",", _MOST_MEMBERS)
    found = [_MEMBER.fullmatch(member) for each in members if (member := each.strip(b" \t"))]
    keys = {match[1] for match in found if match is not None}
    return len(members) <= _MOST_MEMBERS and len(keys) == len(found)
