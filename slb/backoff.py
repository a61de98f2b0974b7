"""How long is waited before what failed is tried again. No clock of its own."""

import re
from email.utils import parsedate_to_datetime

_SECONDS = re.compile(r"[0-9]{1,9}")
_LONGEST_DATE = 40
"""Characters: `Sunday, 06-Nov-94 08:49:37 GMT` has 30 (RFC 9110, 5.6.7)."""


def asked_for(retry_after: str, now: float) -> float:
    """Seconds that a server asks for by Retry-After, in either form (RFC 9110, 10.2.3); 0 for what is neither.
    `now`: seconds since 1970."""
    if _SECONDS.fullmatch(retry_after):
        return float(retry_after)
    if len(retry_after) > _LONGEST_DATE:
        return 0.0
    try:
        return max(0.0, parsedate_to_datetime(retry_after).timestamp() - now)
    except (ValueError, OverflowError, TypeError, IndexError):  # nothing, or not what it should be
        return 0.0


class Backoff:
    """After a time of calm the next attempt is at once, then each pause is twice as long. `begin`: the first pause.
    Seconds."""

    def __init__(self, begin: float = 0.0) -> None:
        self._next = begin
        self._calm_from = 0.0

    def pause(self, now: float, first: float, longest: float, is_calm: bool | None = None) -> float:
        """The pause after a failure at `now`. The one after it is longer, `first` at least, where the next failure
        comes within `longest`, or where `is_calm` is False."""
        if is_calm is None:
            is_calm = now > self._calm_from
        pause = 0.0 if is_calm else self._next
        self._next = min(max(first, 2 * pause), longest)
        self._calm_from = now + pause + longest
        return pause
