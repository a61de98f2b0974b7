"""How long is waited before what failed is tried again. No clock of its own."""


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
