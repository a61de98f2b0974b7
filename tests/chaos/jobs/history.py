"""What is known of a run of jobs: what callers were told, what GPUs and the receiver wrote, what was cut when."""

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple


class Entry(NamedTuple):
    """A line of a GPU's book. `word`: `begin`, `end`, or `answer` (its caller was sent the result); `key`: the job
    and its attempt, `ID-ATTEMPT`; `at`: monotonic seconds of the machine."""

    gpu: str
    word: str
    key: str
    at: float

    @property
    def job(self) -> str:
        return self.key.rpartition("-")[0]


class Cut(NamedTuple):
    """`part` (`redis`, `gpu-N` or `slb-N`) was killed, and `until` then did not run yet, or was frozen."""

    part: str
    how: str
    began: float
    until: float


class Callback(NamedTuple):
    """One delivery: the job of its `webhook-id`, and its body."""

    id: str
    body: Mapping[str, Any]


class History(NamedTuple):
    """`answers`: by job, what was answered last; `seen`: earlier answers, of jobs that had ended; `calls_back`:
    jobs with a callback; `logged`: by `ID-ATTEMPT`, the dispatchers that logged the attempt's end; `slots_left`: by
    upstream, slots that are held though nothing runs."""

    acknowledged: Collection[str]
    answers: Mapping[str, Mapping[str, Any]]
    book: Collection[Entry] = ()
    cuts: Collection[Cut] = ()
    seen: Collection[Mapping[str, Any]] = ()
    calls_back: Collection[str] = ()
    callbacks: Collection[Callback] = ()
    logged: Mapping[str, Collection[str]] = {}
    slots_left: Mapping[str, int] = {}


def entry(gpu: str, line: str) -> Entry | None:
    """None where a kill cut the line off."""
    parts = line.split()
    return Entry(gpu, parts[0], parts[1], float(parts[2])) if len(parts) == 3 else None
