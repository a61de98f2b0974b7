"""Many routes of many upstreams: their names, and how they get into Redis."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from redis import Redis

COMMANDS_AT_ONCE = 500


def set_of(path: str) -> str:
    """The key of a route's set, as a person would write it."""
    return f"slb_{path[1:]}"


@dataclass(frozen=True)
class LargeTable:
    """`routes` routes of `each` upstreams; no two have an upstream in common."""

    routes: int
    each: int

    def path(self, number: int) -> str:
        return f"/team-{number // 100}/model-{number % 100}"

    def members(self, number: int) -> list[str]:
        """The upstreams of one route, as Redis holds them."""
        first = number * self.each
        return [self._member(first + offset) for offset in range(self.each)]

    def write(self, client: Redis, written: Callable[[int], None]) -> None:
        """By pipelines of SADD, as a script of a user's would; `written` is called with the routes of each."""
        for numbers in self._handfuls():
            pipe = client.pipeline(transaction=False)
            for number in numbers:
                pipe.sadd(set_of(self.path(number)), *self.members(number))
            pipe.execute()
            written(len(numbers))

    def _member(self, number: int) -> str:
        return f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}:8000"

    def _handfuls(self) -> Iterator[range]:
        for start in range(0, self.routes, COMMANDS_AT_ONCE):
            yield range(start, min(start + COMMANDS_AT_ONCE, self.routes))
