"""The state of the fleet, as `/fleet/events` sends it: whole at first, then what has changed."""

from collections.abc import Mapping
from typing import Any

Section = dict[str, Mapping[str, Any]]


class FleetState:
    """`sections`: name -> key -> object. Bounded by what the instance shows: it leaves out what is too many."""

    def __init__(self) -> None:
        self.sections: dict[str, Section] = {}

    def apply(self, event: str, data: Mapping[str, Any]) -> None:
        """`all` replaces everything; of any other event null removes an object."""
        if event == "all":
            self.sections = {}
        for name, objects in data.items():
            section = self.sections.setdefault(name, {})
            for key, each in objects.items():
                if each is None:
                    section.pop(key, None)
                else:
                    section[key] = each

    def of(self, section: str) -> Section:
        return self.sections.get(section, {})

    @property
    def own(self) -> Mapping[str, Any]:
        """What the instance that is asked says of itself; empty before the first event."""
        return self.of("view").get("self", {})
