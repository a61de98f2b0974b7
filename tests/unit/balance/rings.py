"""Rings for tests, and the plainest ring there could be, to compare them with."""

from collections.abc import Iterable, Sequence

from hypothesis import strategies as st
from xxhash import xxh64_intdigest

from slb.balance.ring import Ring
from slb.balance.upstream import LiveUpstream
from slb.model import Upstream

KEYS = [b"product-%d" % number for number in range(1000)]
MEMBERS = st.builds(
    "{}10.{}.{}.{}:{}".format,
    st.sampled_from(["", "https://"]),
    st.integers(0, 255),
    st.integers(0, 255),
    st.integers(0, 255),
    st.sampled_from([80, 443, 8080]),
)


def live(member: str, zone: str = "") -> LiveUpstream:
    return LiveUpstream(Upstream.of(member, {"zone": zone} if zone else None))


def fleet(count: int, net: int = 0, zone: str = "") -> list[LiveUpstream]:
    """`count` upstreams; no two of different nets are the same."""
    return [live(f"10.{net}.{number // 250}.{number % 250}:8080", zone) for number in range(count)]


def members(upstreams: Iterable[LiveUpstream]) -> list[str]:
    return [upstream.member for upstream in upstreams]


def owners(ring: Ring, keys: Sequence[bytes] = KEYS) -> list[str]:
    """Who owns each key."""
    return [ring.pick(key).member for key in keys]


class PlainRing:
    """As the definition reads: all positions in one list, looked through from its start."""

    def __init__(self, members: Iterable[str]) -> None:
        names = {member if member.startswith("https://") else f"http://{member}": member for member in members}
        self.positions = sorted(
            (xxh64_intdigest(f"{name}-{number}".encode()), name, member)
            for name, member in names.items()
            for number in range(100)
        )

    def walk(self, key: bytes, digest: int | None = None) -> list[str]:
        """Every member, as it is met clockwise from `key`."""
        at = xxh64_intdigest(key) if digest is None else digest
        after = [member for position, _, member in self.positions if position >= at]
        return list(dict.fromkeys(after + [member for _, _, member in self.positions]))

    def pick(self, key: bytes) -> str:
        return self.walk(key)[0]
