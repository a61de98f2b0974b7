"""What must hold of a history of jobs, whatever died: judged by what callers were told and GPUs wrote."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping
from itertools import pairwise
from typing import Any, NamedTuple

from tests.chaos.jobs.history import Cut, Entry, History

_AFTER = 1.0
"""Seconds after a cut in which what waited for it may begin a run: a frozen dispatcher that sends its call."""


class Verdict(NamedTuple):
    """`broken`: sentences, empty where every promise was kept. `begun`: runs at GPUs; `twice`: by what was cut,
    runs beyond each job's first. `delivered`: callbacks, `again`: of these, those beyond a job's first."""

    broken: list[str]
    ended: Counter[str]
    begun: int
    twice: Counter[str]
    delivered: int
    again: int


def judge(history: History) -> Verdict:
    """The verdict on a whole run."""
    twice: Counter[str] = Counter()
    broken = [
        *_lost(history),
        *_results(history),
        *_callbacks(history),
        *_runs(history, twice),
        *(f"{member} has {held} slots held" for member, held in sorted(history.slots_left.items()) if held),
    ]
    states = Counter(str(each.get("status")) for each in history.answers.values())
    begun = sum(each.word == "begin" for each in history.book)
    told = Counter(each.id for each in history.callbacks)
    return Verdict(broken, states, begun, twice, told.total(), told.total() - len(told))


def _lost(history: History) -> Iterator[str]:
    for id_ in sorted(history.acknowledged):
        answer = history.answers.get(id_)
        if answer is None:
            yield f"{id_} was acknowledged and is not known"
        elif "completed_at" not in answer:
            yield f"{id_} has no end: {answer}"
        elif answer["status"] != "completed":  # no payload is at fault, and there are attempts enough
            yield f"{id_} ended as {answer['status']}: {answer.get('error')}"


def _results(history: History) -> Iterator[str]:
    answered = {each.key for each in history.book if each.word == "answer"}
    for id_, answer in sorted(history.answers.items()):
        result = str(answer.get("result"))
        if answer["status"] != "completed":
            continue
        if result.rpartition("-")[0] != id_:
            yield f"{id_} has another's result: {result!r}"
        elif result not in answered:
            yield f"{id_} has the result of an attempt that no GPU answered: {result!r}"
    for seen in history.seen:
        yield from _same(str(seen["job_id"]), seen, history, "an earlier answer")


def _callbacks(history: History) -> Iterator[str]:
    told = {each.id for each in history.callbacks}
    yield from (f"{id_} had no callback" for id_ in sorted(set(history.calls_back) - told))
    yield from (f"{id_} had a callback, and wanted none" for id_ in sorted(told - set(history.calls_back)))
    for each in history.callbacks:
        yield from _same(each.id, each.body, history, "a callback")


def _same(id_: str, told: Mapping[str, Any], history: History, what: str) -> Iterator[str]:
    """A job ends once: all that tells of its end tells the same."""
    last = history.answers.get(id_)
    if last is None:
        return
    for field in ("job_id", "status", "result"):
        if told.get(field) != last.get(field):
            yield f"{id_} has {field} {last.get(field)!r}, and {what} has {told.get(field)!r}"


def _runs(history: History, twice: Counter[str]) -> Iterator[str]:
    runs: defaultdict[str, list[Entry]] = defaultdict(list)
    for each in history.book:
        if each.word == "begin":
            runs[each.job].append(each)
    yield from (f"{id_} was run and never submitted" for id_ in sorted(set(runs) - set(history.acknowledged)))
    for id_, begun in sorted(runs.items()):
        begun.sort(key=lambda each: each.at)
        for before, after in pairwise(begun):
            cut = _between(before, after, history)
            if cut is None:
                yield f"{id_} ran again as {after.key} at {after.gpu}, and nothing cut off {before.key}"
            else:
                twice[f"{cut.part.partition('-')[0]} {cut.how}"] += 1


def _between(before: Entry, after: Entry, history: History) -> Cut | None:
    """What cut off one of two runs of a job, between their begins: Redis, one of their GPUs, or one of their
    dispatchers. An attempt that no dispatcher logged may have been any's: a kill loses such lines."""
    suspects = {"redis", before.gpu, after.gpu}
    owners = [history.logged.get(each.key, ()) for each in (before, after)]
    suspects.update(*owners)
    is_any = not all(owners)
    for cut in history.cuts:
        overlaps = cut.began <= after.at and cut.until + _AFTER >= before.at
        if overlaps and (cut.part in suspects or (is_any and _is_dispatcher(cut))):
            return cut
    return None


def _is_dispatcher(cut: Cut) -> bool:
    return cut.part.startswith("slb-")


class Drain(NamedTuple):
    """`seconds` from the last fault, or the last submission after it, to the last end; `bound`: what the service of
    the jobs that were left takes at the slots of their model."""

    seconds: float
    bound: float
    left: int

    @property
    def ratio(self) -> float:
        return self.seconds / self.bound if self.bound else 0.0


def drain(since: float, ends: Collection[tuple[str, float]], each: Mapping[str, float], slots: int) -> Drain:
    """`ends`: the model and the end of each job, in the same seconds as `since`; `each`: by model, seconds that a
    job holds its slot; `slots` of each model."""
    left = Counter(model for model, at in ends if at > since)
    bound = max((count * each[model] / slots for model, count in left.items()), default=0.0)
    last = max((at for _, at in ends), default=since)
    return Drain(max(0.0, last - since), bound, left.total())
