"""Which test files run the statement that a change is in: no other can notice it."""

import ast
from pathlib import Path

from coverage import CoverageData

from tools.mutants.edits import Mutant


class Reach:
    """What tools.mutants.recorder has seen of the test files in `folder`, a copy of the tree."""

    def __init__(self) -> None:
        self._ran: dict[str, dict[int, set[str]]] = {}
        self._unseen: set[str] = set()

    def learn(self, records: Path, folder: Path) -> None:
        """Take over what the processes of one run of pytest have left in `records`."""
        for record in records.iterdir():
            data = CoverageData(str(record))
            data.read()
            for file in data.measured_files():
                lines = self._ran.setdefault(str(Path(file).relative_to(folder)), {})
                for line, contexts in data.contexts_by_lineno(file).items():
                    lines.setdefault(line, set()).update(contexts)

    def learn_nothing(self, file: str) -> None:
        """This test file may run anything: it is always to be asked."""
        self._unseen.add(file)

    def of(self, mutant: Mutant, source: bytes, files: tuple[str, ...]) -> tuple[str, ...]:
        """Those of `files` that may notice the change: all where it is in no function, or in a statement that an
        import runs."""
        span = _statement(source, mutant)
        ran = self._ran.get(mutant.path, {})
        found = set().union(*(ran.get(line, ()) for line in span))
        if not span or "" in found:
            return files
        return tuple(each for each in files if each in found or each in self._unseen)


def _statement(source: bytes, mutant: Mutant) -> range:
    """The lines of the innermost statement around a change; none outside functions."""
    nodes = list(ast.walk(ast.parse(source)))
    functions = (each for each in nodes if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef))
    if not any(each.body[0].lineno <= mutant.line <= (each.end_lineno or 0) for each in functions):
        return range(0)
    spans = (range(each.lineno, (each.end_lineno or 0) + 1) for each in nodes if isinstance(each, ast.stmt))
    return min((each for each in spans if mutant.line in each), key=len)
