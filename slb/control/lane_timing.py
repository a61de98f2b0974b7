"""The time limits of a lane."""

from dataclasses import dataclass

SPARE = 0.5
"""Seconds that a grant waits for longer than Redis, or the way to it, may stall: half for the message of
it, half for the batch that acknowledges it."""


@dataclass(frozen=True, slots=True)
class LaneTiming:
    """Seconds. `budget`: how long Redis may take to answer a batch before it is late, and asks that are not patient
    are handed back; so one of them waits for two budgets at most, if it comes while another batch is in flight.
    `silence`: how long Redis may not answer before this instance decides alone. `look`: between two looks of a lane
    that waits in the queue; `patience`: how long a grant may wait to be taken up; where that is not longer than
    `silence`, none is taken from a message. `settle`: how long others may take to send what they hold after Redis
    has lost it. `linger`: how long a release may wait for an ask to go with, where there is no cap. `deadline`: of
    a batch while this instance decides alone, where `silence` is shorter. `backoff`: before the second attempt of
    those in a row that fail, and doubled up to `longest_backoff` from then on; up to `longest_retry` before this
    instance decides alone, so that a refusal which ends within `silence` is seen to end."""

    budget: float = 0.05
    silence: float = 1.5
    beat: float = 2.0
    lease: float = 10.0
    life: float = 60.0
    look: float = 0.25
    patience: float = 1.5 + SPARE
    settle: float = 2.0
    linger: float = 0.002
    deadline: float = 1.0
    backoff: float = 0.05
    longest_backoff: float = 0.5
    longest_retry: float = 0.1
