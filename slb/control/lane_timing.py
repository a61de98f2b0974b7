"""The time limits of a lane."""

from dataclasses import dataclass

SPARE = 0.5
"""Seconds that a grant waits for longer than Redis, or the way to it, may stall: half for the message of
it, half for the batch that acknowledges it."""


@dataclass(frozen=True, slots=True)
class LaneTiming:
    """Seconds. `budget`: Redis takes longer to answer: it is late, and asks that are not patient are handed back.
    `silence`: Redis does not answer for so long: this instance decides alone. `look`: between two looks while
    something waits in the queue. `patience`: how long a grant may wait to be taken up; where that is not longer
    than `silence`, none is taken from a message. `settle`: how long others may take to send what they hold after a
    loss. `linger`: how long a release may wait for an ask to go with, where there is no cap. `deadline`: of a batch
    while this instance decides alone, where `silence` is shorter. `backoff`: before the second attempt of those
    that fail, doubled each time up to `longest_backoff`; up to `longest_retry` before this instance decides
    alone."""

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
