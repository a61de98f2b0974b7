"""How long a lane waits for what."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LaneTiming:
    """Seconds. `budget`: how long an ask may wait for Redis. `look`: between two looks of who waits in the queue;
    `patience`: how long a grant may wait to be taken up. `settle`: how long others may take to say what they hold
    after Redis has lost it. `linger`: how long a release may wait for an ask to go with, where there is no cap."""

    budget: float = 0.05
    beat: float = 2.0
    lease: float = 10.0
    life: float = 60.0
    look: float = 0.25
    patience: float = 1.0
    settle: float = 2.0
    linger: float = 0.002
    deadline: float = 1.0
    backoff: float = 0.05
    longest_backoff: float = 0.5
