"""What decides in a pool, and its log."""

import structlog

from slb.admission.shown import Mode
from slb.control.lane import Lane
from slb.observe.throttle import Seldom

_UNSURE_PERIOD = 1.0
"""Seconds between two log lines on grants without Redis."""

_log = structlog.get_logger()


class PoolMode:
    """The mode of one pool, which follows from its lane. `log` is called at each change."""

    def __init__(self, pool: str, lane: Lane) -> None:
        self._pool = pool
        self._lane = lane
        self._logged: Mode = "shared"
        self._unsure = Seldom(_UNSURE_PERIOD, self._log_unsure)

    @property
    def now(self) -> Mode:
        lane = self._lane
        if not lane.state.ready:
            return "local"
        if lane.settling:
            return "settling"
        return "late" if lane.state.late else "shared"

    def log(self) -> None:
        """Log what has changed since the last call, but for `late`, which `count_unsure` logs."""
        lane, before = self._lane, self._logged
        now = self._logged = self.now
        if now == "local" and before != now:
            _log.warning("ledger_local", pool=self._pool, error=lane.state.error)
        elif now == "settling" and before != now:
            _log.warning("ledger_settling", pool=self._pool, holders=lane.epochs.holders)
        elif before in ("local", "settling") and now not in (before, "settling"):
            _log.info("ledger_shared", pool=self._pool)
        if before == "settling" and lane.state.ready and not lane.settling and lane.epochs.unreported:
            _log.warning("ledger_unheard", pool=self._pool, holders=lane.epochs.unreported)

    def count_unsure(self) -> None:
        """A slot under a cap was granted here. Logged once a second at most, unless Redis is known to be gone."""
        if self._lane.state.ready:
            self._unsure.count(self.now)

    def _log_unsure(self, grants: int, mode: Mode) -> None:
        _log.warning("ledger_unsure", pool=self._pool, mode=mode, local_grants=grants)
