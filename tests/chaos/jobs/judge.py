"""What must hold of a history of jobs, whatever died: judged by what callers were answered and GPUs wrote."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple


class Verdict(NamedTuple):
    """`broken`: sentences, empty where every promise was kept. `twice`: attempts beyond each job's first;
    `cut`: of these, those that followed one which did not end at its GPU."""

    broken: list[str]
    ended: Counter[str]
    begun: int
    twice: int
    cut: int


def judge(
    acknowledged: Iterable[str], answers: Mapping[str, Any], book: Iterable[str], slots_left: Mapping[str, int]
) -> Verdict:
    """`answers`: by id, what was answered last; `book`: lines `begin ID-ATTEMPT` and `end ID-ATTEMPT`;
    `slots_left`: by upstream, slots that are held though nothing runs."""
    known = set(acknowledged)
    broken = [f"{id_} was acknowledged and is not known" for id_ in sorted(known - set(answers))]
    states = Counter(str(answers[id_]["status"]) for id_ in known & set(answers))
    for id_ in sorted(known & set(answers)):
        if "completed_at" not in answers[id_]:
            broken.append(f"{id_} has no end: {answers[id_]}")
        elif answers[id_]["status"] == "completed" and answers[id_].get("result") != id_:
            broken.append(f"{id_} has another's result: {answers[id_].get('result')!r}")
    begins, ends = _attempts(book, "begin"), _attempts(book, "end")
    broken += [f"{id_} was run and never submitted" for id_ in sorted(set(begins) - known)]
    for id_ in known & set(answers):
        if answers[id_]["status"] == "completed" and not ends[id_]:
            broken.append(f"{id_} is completed, and no GPU ended it")
    broken += [f"{member} has {held} slots held" for member, held in sorted(slots_left.items()) if held]
    twice = sum(count - 1 for count in begins.values())
    cut = sum(max(0, begins[id_] - max(1, ends[id_])) for id_ in begins)
    return Verdict(broken, states, begins.total(), twice, cut)


def _attempts(book: Iterable[str], word: str) -> Counter[str]:
    """How often each job was begun, or ended, at any GPU."""
    lines = (line.split() for line in book)
    return Counter(each[1].rpartition("-")[0] for each in lines if len(each) == 2 and each[0] == word)
