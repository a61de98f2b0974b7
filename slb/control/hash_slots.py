"""Hash slots of Redis Cluster: https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/. Pure."""

from binascii import crc_hqx
from collections.abc import Iterable
from itertools import count

SLOTS = 16_384


def slot_of(key: str) -> int:
    """The slot of a key: of what stands between its first `{` and the next `}`, if anything does, else of all."""
    data = key.encode("utf-8", "surrogateescape")
    _, opened, behind = data.partition(b"{")
    tag, closed, _ = behind.partition(b"}")
    return crc_hqx(tag if opened and closed and tag else data, 0) % SLOTS


def tags_of(parts: int) -> Iterable[str]:
    """For each of so many equal parts of all slots a tag that lies there; the same ones each time."""
    found: dict[int, str] = {}
    for number in count():
        found.setdefault(slot_of(str(number)) * parts // SLOTS, str(number))
        if len(found) == parts:
            return [found[part] for part in range(parts)]
    raise AssertionError
