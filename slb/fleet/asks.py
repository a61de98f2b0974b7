"""What a viewer asks of all processes. Any program may publish an ask, so what one may cause is bounded where it is
answered."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import orjson

from slb.fleet.failures import MOST_AT_ONCE
from slb.fleet.frame import VERSION
from slb.fleet.frame_values import listed, name_of, number

_SLOWEST = 60.0
LONGEST_ID = 200
"""Characters of a request's id."""
LONGEST_MEMBER = 300
"""Characters of an upstream's address."""


class Ask(NamedTuple):
    """For the frames of all, one `every` so many seconds, with all rows where `is_full`; or, once, for the last
    hour (`wants_history`), that of a route or an upstream alone (`hour_of`), the failures in it of several
    (`failures_of`), what is known of the request `explain`, or what is in flight at `upstream`."""

    asker: str
    every: float = 0.0
    is_full: bool = False
    wants_history: bool = False
    explain: str = ""
    upstream: str = ""
    hour_of: str = ""
    failures_of: Sequence[str] = ()

    @property
    def is_question(self) -> bool:
        """Whether it wants one answer, and no frames."""
        return self.wants_history or bool(self.explain or self.upstream or self.hour_of or self.failures_of)

    def written(self) -> bytes:
        return orjson.dumps({"v": VERSION, **self._asdict()})


def read_ask(text: str) -> Ask | None:
    """None for what is none."""
    try:
        found: dict[str, Any] = orjson.loads(text)
        if found["v"] != VERSION:
            return None
        return Ask(
            name_of(found["asker"], 64),
            min(max(number(found["every"]), 0.0), _SLOWEST),
            found["is_full"] is True,
            found["wants_history"] is True,
            name_of(found["explain"], LONGEST_ID),
            name_of(found.get("upstream", ""), LONGEST_MEMBER),  # older versions do not ask for it
            name_of(found.get("hour_of", "")),
            tuple(name_of(each) for each in listed(found.get("failures_of", []), MOST_AT_ONCE)),
        )
    except (ValueError, TypeError, KeyError):
        return None
