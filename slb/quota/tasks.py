"""Tasks that were admitted: which run, and until when; and for a while what became of the others."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heappop, heappush

from slb.quotas import TaskState


@dataclass(slots=True)
class Task:
    """Times in milliseconds. `key` may be empty; `subset`: the models that would do, as text; `lapses`: when its
    lease does."""

    model: str
    estimate: int
    at: int
    key: str
    subset: str
    lapses: int
    state: TaskState = "running"
    ended: int = 0


class Tasks:
    """By their ids. A key belongs to its task as long as that runs."""

    def __init__(self) -> None:
        self._known: dict[str, Task] = {}
        self._keys: dict[str, str] = {}
        self._leases: list[tuple[int, str]] = []
        self._ended: deque[str] = deque()

    def __contains__(self, task: str) -> bool:
        return task in self._known

    def get(self, task: str) -> Task | None:
        """None where it was never admitted, or is forgotten."""
        return self._known.get(task)

    def of_key(self, key: str) -> str | None:
        """The task that runs under this key."""
        return self._keys.get(key)

    def begin(self, task: str, known: Task) -> None:
        """It runs now."""
        self._known[task] = known
        heappush(self._leases, (known.lapses, task))
        if known.key:
            self._keys[known.key] = task

    def renew(self, task: str, lapses: int) -> None:
        """Its lease."""
        self._known[task].lapses = lapses
        heappush(self._leases, (lapses, task))

    def lapsed(self, now: int) -> Iterator[tuple[str, Task]]:
        """Those that run, and whose lease has lapsed; each once."""
        while self._leases and self._leases[0][0] <= now:
            lapses, task = heappop(self._leases)
            known = self._known.get(task)
            if known is not None and known.state == "running" and known.lapses == lapses:
                yield task, known

    def end(self, task: str, state: TaskState, now: int) -> None:
        """It runs no more."""
        known = self._known[task]
        known.state, known.ended = state, now
        self._ended.append(task)
        if self._keys.get(known.key) == task:
            del self._keys[known.key]

    def ended(self) -> Iterator[tuple[str, Task]]:
        """The oldest first."""
        return ((task, self._known[task]) for task in self._ended)

    def forget(self, before: int) -> None:
        """What ended by then."""
        while self._ended and self._known[self._ended[0]].ended <= before:
            del self._known[self._ended.popleft()]
