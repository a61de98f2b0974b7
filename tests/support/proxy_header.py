"""PROXY headers of version 2."""

import struct

SIGNATURE = b"\r\n\r\n\0\r\nQUIT\n"


def version_2(command: int, family: int, payload: bytes) -> bytes:
    """`command` and `family` are one byte each; `payload`: addresses and fields."""
    return SIGNATURE + bytes([command, family]) + struct.pack("!H", len(payload)) + payload
