"""uhashring, the ring that Python programs commonly use: as it comes, as ketama, and as the ring that slb has."""

from collections.abc import Callable, Sequence

from xxhash import xxh64_intdigest

from bench.errors import BenchError

AS_IT_COMES, KETAMA, SAME_RING = "uhashring", "uhashring, ketama", "uhashring, the same ring"
OTHERS = (AS_IT_COMES, KETAMA, SAME_RING)

_SETTINGS: dict[str, dict[str, object]] = {
    AS_IT_COMES: {},
    KETAMA: {"hash_fn": "ketama"},
    SAME_RING: {"hash_fn": lambda key: xxh64_intdigest(key.encode()), "vnodes": 100},
}


def made_other(name: str, endpoints: Sequence[str]) -> Callable[[str], str]:
    """What gives the owner of a key, of one of OTHERS."""
    try:
        from uhashring import HashRing  # only the bench extra has it
    except ImportError as error:
        raise BenchError("uhashring is not installed: make bench-ring does that") from error
    pick: Callable[[str], str] = HashRing(nodes=list(endpoints), **_SETTINGS[name]).get_node
    return pick
