"""Which upstreams the address rules let a session call."""

from collections.abc import Sequence

import structlog

from slb.addresses import AddressRules
from slb.balance.eligible import untried
from slb.balance.upstream import LiveUpstream

_log = structlog.get_logger()


class Permitted:
    """Leaves out upstreams that are never called, and logs each once for as long as a route names it."""

    def __init__(self, rules: AddressRules) -> None:
        self._rules = rules
        self._logged: set[str] = set()

    def of(self, upstreams: tuple[LiveUpstream, ...]) -> tuple[LiveUpstream, ...]:
        """The very same tuple where all are permitted."""
        refused = [each for each in upstreams if self._is_refused(each)]
        return untried(upstreams, refused) if refused else upstreams

    def forget(self, gone: Sequence[str]) -> None:
        """No route names these members any more."""
        self._logged.difference_update(gone)

    def _is_refused(self, upstream: LiveUpstream) -> bool:
        why = self._rules.literal_refusal(upstream.spec)
        if why and upstream.member not in self._logged:
            self._logged.add(upstream.member)
            _log.warning("upstream_skipped", upstream=upstream.member, reason=why)
        return why is not None
