"""The message with the slots that tickets of an instance have been granted, as `lua/grants.lua` publishes it."""

from typing import NamedTuple

import orjson

MOST_BYTES = 1 << 16
MOST_GRANTS = 100
"""In one message; an instance gets more with the reply to its next batch."""


class Granted(NamedTuple):
    """`at`: when, in milliseconds of Redis's clock. `epoch`: the pool's. `grants`: (ticket's name, member)."""

    pool: str
    at: int
    epoch: str
    grants: tuple[tuple[str, str], ...]


def read_granted(text: str) -> Granted | None:
    """None for any other text: any program may publish."""
    if len(text) > MOST_BYTES:
        return None
    try:
        message = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    match message:
        case {"pool": str(pool), "at": int(at), "epoch": str(epoch), "grants": list(grants)}:
            if len(grants) > MOST_GRANTS or not all(_is_grant(each) for each in grants):
                return None
            return Granted(pool, at, epoch, tuple((ticket, member) for ticket, member in grants))
    return None


def _is_grant(value: object) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(isinstance(each, str) for each in value)
