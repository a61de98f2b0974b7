"""Bytes that are held until more of them come."""

from typing import cast


def appended(held: bytes | bytearray, data: bytes) -> bytes:
    """`held` with `data` behind it, grown in place from its second piece on: a peer may send byte by byte, and each
    of them must not cost a copy of all before it. To be replaced by its result, and made `bytes` before anybody
    keeps it."""
    grown = held if isinstance(held, bytearray) else bytearray(held)
    grown += data
    return cast("bytes", grown)
