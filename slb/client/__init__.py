"""The library: load balancing inside the process that makes the calls. See docs/client.md."""

from slb.client.hash_key import LONGEST_KEY
from slb.client.refusals import CallRefused, SessionClosed
from slb.client.session import Session, shed_when_full
from slb.errors import ConfigError
from slb.observe.outbound import OutboundCollector, OutboundMetrics
from slb.registration import Registration, RegistrationRefused

__all__ = [
    "LONGEST_KEY",
    "CallRefused",
    "ConfigError",
    "OutboundCollector",
    "OutboundMetrics",
    "Registration",
    "RegistrationRefused",
    "Session",
    "SessionClosed",
    "shed_when_full",
]
