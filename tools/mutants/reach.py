"""Which test files run the function that a change is in: no other can notice it."""

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
        """Those of `files` that may notice the change: all where it is in no function, or in one that an import
        runs."""
        span = _function(source, mutant.line)
        ran = self._ran.get(mutant.path, {})
        found = set().union(*(ran.get(line, ()) for line in span))
        if not span or "" in found:
            return files
        return tuple(each for each in files if each in found or each in self._unseen)


def _function(source: bytes, line: int) -> range:
    """The lines of the innermost function around a line, without its first, which is run where it is defined."""
    spans = [
        range(node.body[0].lineno, (node.end_lineno or 0) + 1)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    return min((each for each in spans if line in each), key=len, default=range(0))
