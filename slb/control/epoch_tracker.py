"""A lane's view of Redis: whether it is the same server and data, and has the counts of all holders."""

from collections.abc import Mapping
from typing import Any

from slb.control.batch import Batch
from slb.control.granted import Granted
from slb.control.lane_timing import LaneTiming


class EpochTracker:
    """Fed with each reply; does no I/O. Times are the event loop's, in seconds. `epoch`: as the pool's keys name
    it; another one means that Redis has lost something, or is another Redis. `settling`: some holders have not sent
    what they hold in this epoch. `holders`: how many there were when all had. `steady_since`: since when it is the
    same Redis with the same clock; 0.0 before that. `unreported`: how many had not sent when settling ended."""

    def __init__(self) -> None:
        self.epoch = ""
        self.settling = False
        self.holders = 0
        self.steady_since = 0.0
        self.unreported = 0
        self._acknowledged = -1
        self._full_at = 0.0
        self._awaited = 0
        self._settled_at = 0.0
        self._clock = 0, 0.0
        self._asked_at = 0.0

    def redis_time(self, now: float) -> int:
        """Redis's clock, estimated from its last reply: milliseconds."""
        reported, replied_at = self._clock
        return reported + int((now - replied_at) * 1000)

    def trusts(self, granted: Granted, now: float, timing: LaneTiming) -> bool:
        """Whether a message's grants still stand when the batch that acknowledges them is run, even if Redis is
        silent for `silence` before: they are of the Redis that answered last, and young."""
        age = self._clock[0] + (now - self._asked_at) * 1000 - granted.at
        most = (timing.patience - timing.silence) * 500
        is_same = bool(self.steady_since) and not self.settling and granted.epoch == self.epoch
        return is_same and -most < age < most

    def has_lost(self, reply: Mapping[str, Any]) -> bool:
        """Whether this reply is the first of another epoch."""
        return self.epoch not in ("", reply["epoch"])

    def renamed(self, reply: Mapping[str, Any], now: float, lease: float) -> bool:
        """Whether this holder is gone because its lease has ended: the new one has no epoch yet. False where Redis
        has lost all."""
        if now - self._full_at < lease or self.has_lost(reply):
            return False
        self._acknowledged = -1
        return True

    def cut(self) -> None:
        """It may be another Redis, or an older one, that answers next."""
        self.steady_since = 0.0

    def given_up(self) -> None:
        self.settling = False

    def follow(self, batch: Batch, reply: Mapping[str, Any], sent: float, now: float, timing: LaneTiming) -> None:
        """Apply what a reply shows of Redis itself: to a batch that was run, and sent at `sent`."""
        if batch.fresh or self.settling:
            self._follow_settling(reply, now, timing.settle)
        self.epoch = reply["epoch"]
        self._acknowledged = batch.seq
        if batch.full:  # only these renew the lease
            self._full_at = now
        if reply["now"] - self.redis_time(now) > timing.lease * 500:  # it has jumped: leases have not ended
            self.steady_since = 0.0
        self.steady_since = self.steady_since or now
        self._clock, self._asked_at = (int(reply["now"]), now), sent
        if not self.settling:
            self.holders = int(reply["holders"])

    def _follow_settling(self, reply: Mapping[str, Any], now: float, patience: float) -> None:
        """Where Redis has lost the list of holders, as many are awaited as there were before."""
        if self.has_lost(reply) or reply["last"] < self._acknowledged:
            self._awaited, self._settled_at = self.holders, now + patience
        behind = reply["pushed"] < max(self._awaited, reply["holders"])
        if behind and not self.settling and now >= self._settled_at:
            self._settled_at = now + patience  # we lost nothing; others may have
        self.settling = behind and now < self._settled_at
        self.unreported = max(self._awaited, reply["holders"]) - reply["pushed"] if behind else 0
        if not self.settling:
            self._awaited = 0
