"""The least loaded as the whole fleet counts it. Redis decides; this is what is done where it cannot."""

from slb.balance.least_local import LeastLocal


class LeastInflight(LeastLocal):
    """Decided locally, it is the least local: of all counts only this instance's own are known then."""
