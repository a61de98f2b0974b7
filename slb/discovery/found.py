"""What a source says that the members of a route are."""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol


class Member(NamedTuple):
    """One upstream. `is_draining`: it finishes what it has, and gets nothing new. `weight`, `slots`: None where the
    source says nothing of them; zone and node: empty."""

    is_draining: bool = False
    weight: int | None = None
    slots: int | None = None
    zone: str = ""
    node: str = ""


class Found(NamedTuple):
    """All members of one route by one source, in the form `host:port` or `https://host:port`. `is_gone`: the source
    itself says that what it followed is gone, so that no members are the truth and not a fault."""

    members: Mapping[str, Member]
    is_gone: bool = False


@dataclass
class Asked:
    """How the asking goes; the source writes it, /status and the metrics show it. `answered_at`: the last answer,
    in seconds since the epoch, 0 for none. `trouble`: why there is none since; empty where there is."""

    answered_at: float = 0.0
    trouble: str = ""


class Source(Protocol):
    """Follows one thing for one route."""

    @property
    def name(self) -> str:
        """As operators see it, and as its members are owned in Redis: `kubernetes/ml/flux:http`,
        `dns+srv://_http._tcp.flux.internal`, `file/members.toml`."""

    @property
    def path(self) -> str:
        """The route."""

    @property
    def asked(self) -> Asked:
        """How the asking goes."""

    def follow(self) -> AsyncIterator[Found]:
        """The whole set, at the start and whenever it has changed. A source that cannot be asked yields nothing,
        and tries again: the last set holds. Never ends by itself."""
