"""Whether a request may be sent a second time."""

_IDEMPOTENT = frozenset({b"GET", b"HEAD", b"OPTIONS", b"TRACE", b"PUT", b"DELETE"})
"""RFC 9110, 9.2.2."""


def is_idempotent(method: bytes) -> bool:
    """Whether sending the request twice means the same as sending it once."""
    return method in _IDEMPOTENT
