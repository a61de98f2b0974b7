"""What became of changes: kept in a file, so that a run that was stopped goes on; and summed up by file."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Literal, get_args

from tools.mutants.edits import Mutant

Outcome = Literal["caught", "timed out", "argued", "stillborn", "survived"]
_COLUMNS: Sequence[Outcome] = get_args(Outcome)
NOTICED: Sequence[Outcome] = ("caught", "timed out")


class Results:
    """The outcomes in `file`, a line of JSON each. `tree` stands for the code and the tests as they are now.

    One that is caught stays so until its source file changes; any other is true for the same tree only.
    """

    def __init__(self, file: Path, tree: str) -> None:
        self._file, self._tree = file, tree
        self._known: dict[str, Outcome] = {}
        for line in file.read_text().splitlines() if file.exists() else ():
            try:
                entry = json.loads(line)
            except ValueError:  # the empty first line, or one whose writer was killed
                continue
            if entry["found"] == "caught" or entry["tree"] == tree:
                self._known[entry["change"]] = entry["found"]

    def of(self, mutant: Mutant, source: bytes) -> Outcome | None:
        """What became of a change of `source` earlier; None where that is not known."""
        return self._known.get(_change(mutant, source))

    def add(self, mutant: Mutant, source: bytes, found: Outcome) -> None:
        """Write it to the file at once."""
        change = _change(mutant, source)
        self._known[change] = found
        entry = {"found": found, "path": mutant.path, "line": mutant.line, "change": change, "tree": self._tree}
        with self._file.open("a") as file:
            file.write(f"\n{json.dumps(entry)}")  # before it may be a line whose writer was killed


def digest(parts: Iterable[bytes]) -> str:
    """One name for all of these, in this order."""
    return sha256(b"".join(sha256(part).digest() for part in parts)).hexdigest()[:16]


def _change(mutant: Mutant, source: bytes) -> str:
    return digest((mutant.path.encode(), source, mutant.applied(source)))


def table(found: Mapping[Mutant, Outcome]) -> str:
    """How many of each outcome, by file; the last line has them all."""
    rows: dict[str, Counter[Outcome]] = {}
    for mutant, outcome in sorted(found.items(), key=lambda pair: pair[0].path):
        rows.setdefault(mutant.path, Counter())[outcome] += 1
    rows["all"] = Counter(found.values())
    width = max(map(len, rows))
    lines = [" ".join(["file".ljust(width), *_COLUMNS])]
    for path, counted in rows.items():
        lines.append(" ".join([path.ljust(width), *(str(counted[each]).rjust(len(each)) for each in _COLUMNS)]))
    return "\n".join(lines)


def share(found: Mapping[Mutant, Outcome]) -> tuple[int, int]:
    """How many were noticed, and of how many: those that are argued or cannot be imported do not count."""
    counted = Counter(found.values())
    noticed = sum(counted[each] for each in NOTICED)
    return noticed, noticed + counted["survived"]
