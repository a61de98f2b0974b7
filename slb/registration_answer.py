"""What an answer to a registration, or to its removal, means: taken, refused, or to be tried again."""

import enum
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_SHOWN = 200  # characters that are logged of an answer that is not slb's
_PASSING = (408, 429)  # statuses below 500 after which the same call may be taken


class Kind(enum.Enum):
    """What came of a call."""

    CHANGED = "changed"  # the registration was added, or removed
    UNCHANGED = "unchanged"  # it stood before a POST, or did not before a DELETE
    REFUSED = "refused"  # the same call would be refused again: a 4xx, or the answer of a server that is not slb
    FAILED = "failed"  # the same call may be taken later: no answer, a 5xx, 408 or 429
    UNSENT = "unsent"  # As FAILED, and there was no connection: slb cannot have done what was asked


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of a call, and where it was not taken, why, with the URL."""

    kind: Kind
    why: str = ""

    @property
    def is_taken(self) -> bool:
        """Whether slb has done what was asked, or had before."""
        return self.kind in (Kind.CHANGED, Kind.UNCHANGED)


def judged(url: str, method: str, named: Mapping[str, str], status: int, text: str) -> Answer:
    """What the answer of `url`, its status and the start of its body, means for a POST or DELETE of the
    registration `named`, whose path and target an slb repeats."""
    answer = _parsed(text)
    seen = f"answered {status} {_reason(answer, text)}"
    if status >= 500 or status in _PASSING:
        return Answer(Kind.FAILED, f"{url} {seen}")
    if status >= 400:
        return Answer(Kind.REFUSED, f"{url} {seen}")
    changed = answer.get("added" if method == "POST" else "removed")
    if isinstance(changed, bool) and named.items() <= answer.items():
        return Answer(Kind.CHANGED if changed else Kind.UNCHANGED)
    return Answer(Kind.REFUSED, f"{url} is not the API of an slb: it {seen}")


def _parsed(text: str) -> dict[str, Any]:
    try:
        answer = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return answer if isinstance(answer, dict) else {}


def _reason(answer: Mapping[str, Any], text: str) -> str:
    """slb's reason without the request id, which differs each time; the start of what another server answers."""
    if "error" in answer and "detail" in answer:
        return f"{answer['error']}: {answer['detail']}"
    return " ".join(text.split())[:_SHOWN]
