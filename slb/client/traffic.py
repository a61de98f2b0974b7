"""Which calls go by the ring at all: the off switch and the percentage, both changeable while calls are made."""

from random import Random

from slb.errors import ConfigError

WHOLE = 100.0


class Traffic:
    """`percentage` of the calls go by the ring, 0 to 100, and none of them unless `enabled`. What a route says
    (`client_percentage`) may lower that, never raise it. `share` is what both come to."""

    def __init__(self, percentage: float, enabled: bool, has_fallback: bool, rng: Random) -> None:
        self._rng = rng
        self._has_fallback = has_fallback
        self.set_percentage(percentage)
        self.set_enabled(enabled)

    def set_percentage(self, value: float) -> None:
        """Raises ConfigError where it is not from 0 to 100, or the rest has nowhere to go."""
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= WHOLE:
            raise ConfigError(f"percentage = {value!r}: a number from 0 to 100")
        if value < WHOLE and not self._has_fallback:
            raise ConfigError(f"percentage = {value!r}: set fallback, the URL that the rest of the calls go to")
        self.percentage = float(value)

    def set_enabled(self, value: bool) -> None:
        """False sends every call to the fallback. Raises ConfigError where there is none."""
        if not isinstance(value, bool):
            raise ConfigError(f"enabled = {value!r}: True or False")
        if not value and not self._has_fallback:
            raise ConfigError("enabled = False: set fallback, the URL that all calls go to instead")
        self.enabled = value

    @property
    def share(self) -> float:
        """The percentage, 0 where it is not enabled."""
        return self.percentage if self.enabled else 0.0

    def goes_by_ring(self, allowed: float) -> bool:
        """Whether the next call does, `allowed` being its route's percentage."""
        share = min(self.share, allowed)
        return share >= WHOLE or self._rng.random() * WHOLE < share
