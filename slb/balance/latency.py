"""How long the requests of an upstream took."""

from dataclasses import dataclass
from math import exp

MEMORY = 1.0
"""Seconds after which a latency counts 1/e. Longer than the window, for a hit and a miss differ by a hundred times:
what an upstream does usually is to be seen, not what it did last."""

MEMORY_REQUESTS = 8.0
"""The memory is as long as this many requests take one after another, where that is longer: of an upstream that
takes ten seconds for each, one second holds none, and any upstream that begins would look stuck at once."""


@dataclass(slots=True, eq=False)
class Latency:
    """Seconds throughout. Of late, as of `last`, when a request was added: `sum`, how long requests took together,
    and `count`, how many they were; both fade over `memory`. Since the start: `completed`, how many, `seconds`, how
    long they took together, and `squares`, the sum of the squares of that."""

    sum: float = 0.0
    count: float = 0.0
    memory: float = MEMORY
    last: float = -1.0e9
    completed: int = 0
    seconds: float = 0.0
    squares: float = 0.0

    def learn(self, took: float, now: float) -> None:
        """Add a request that has been answered."""
        fade = exp((self.last - now) / self.memory)
        seconds = self.sum = self.sum * fade + took
        count = self.count = self.count * fade + 1.0
        served = MEMORY_REQUESTS * seconds
        self.memory = served / count if served > MEMORY * count else MEMORY
        self.last = now
        self.completed += 1
        self.seconds += took
        self.squares += took * took

    def lately(self, now: float) -> tuple[float, float]:
        """`sum` and `count` as they have faded by now."""
        fade = exp(min(0.0, self.last - now) / self.memory)
        return self.sum * fade, self.count * fade
