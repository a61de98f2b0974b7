"""What an operator should know now, in plain sentences. Pure: the state in, alerts out."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

Objects = Mapping[str, Mapping[str, Mapping[str, Any]]]


class Alert(NamedTuple):
    """`subject`: the route, upstream or instance that it is about, by these names."""

    level: str
    text: str
    subject: Mapping[str, str] = {}


class Alerts:
    """Adds since when each is there."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}

    def of(self, objects: Objects, now: float) -> dict[str, dict[str, Any]]:
        """`now`: seconds since 1970."""
        found = dict(alerts(objects))
        self._since = {id_: self._since.get(id_, now) for id_ in found}
        return {
            id_: {"level": each.level, "text": each.text, "since": round(self._since[id_], 3), **each.subject}
            for id_, each in found.items()
        }


def alerts(objects: Objects) -> Iterator[tuple[str, Alert]]:
    """id -> alert, the same id as long as it lasts."""
    yield from ()
