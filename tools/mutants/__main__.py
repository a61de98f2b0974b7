"""A seeded sample of small changes to the code, each tried against the tests that should notice.

    python -m tools.mutants [--seed N] [--count N] [--workers N] [--near] [FILE...]    # what `make mutants` runs

Prints each change and what became of it, and a summary; ends with 1 where less than 90 % were noticed. Test files
that do not run the statement of a change are not asked about it. A change that makes no difference is argued in
argued.toml, and not tried. The place of a change in the sample depends on nothing but itself and the seed.

What was found is kept in .mutants, and so are the copies of the tree that are broken: the same command goes on
where an earlier one was stopped, and tries what survived again once code or tests have changed. `--anew` forgets
all that. The near tests are asked about all changes first, and the others, which take minutes, about what is left.
A change whose tests take too long is tried once more after the others, alone and with more time.
"""

import argparse
import compileall
import os
import py_compile
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue
from tempfile import TemporaryDirectory
from threading import Lock
from typing import Literal

from tools.mutants.edits import Mutant, mutants
from tools.mutants.reach import Reach
from tools.mutants.results import Outcome, Results, digest, share, table
from tools.mutants.rooms import Stage, sources, stages
from tools.mutants.run import run

ROOT = Path(__file__).resolve().parent.parent.parent
_ARGUED = Path(__file__).with_name("argued.toml")
_WANTED = 0.9
_LONGEST = 1800.0
"""Seconds for tests with nothing broken."""
_NOT_COLLECTED = (2, 4)
"""How pytest ends where a test file cannot be imported, or one of several processes has failed."""
_MORE_TIME = 2.0
"""How much longer the tests of a change may take that is tried once more."""

Tests = Literal["near", "far"]


class Copies:
    """Copies of the tree, one for each worker; and how long each test file takes with nothing broken, and what it
    runs."""

    def __init__(self, folder: Path, workers: int) -> None:
        self._folder = folder
        self._free: SimpleQueue[Path] = SimpleQueue()
        self._claiming = Lock()
        self._reach = Reach()
        self._seconds: dict[str, Future[float]] = {}
        for number in range(workers):
            self._free.put(_copy_to(folder / str(number)))

    @contextmanager
    def one(self) -> Iterator[Path]:
        """A copy that no other worker uses meanwhile."""
        copy = self._free.get()
        try:
            yield copy
        finally:
            self._free.put(copy)

    def asked(self, mutant: Mutant, stage: Stage, copy: Path) -> tuple[Stage, float]:
        """What of a stage may notice a change, and for how many seconds it may run. Raises RuntimeError where its
        tests fail, twice, with nothing broken."""
        self._learn(stage, copy)
        files = self._reach.of(mutant, (copy / mutant.path).read_bytes(), stage.files)
        seconds = sum(self._seconds[each].result() for each in files)
        if len(files) < stage.processes:  # starting so many would take longer
            return Stage(files), 30 + 4 * seconds * stage.processes
        return Stage(files, stage.processes), 30 + 4 * seconds

    def _learn(self, stage: Stage, copy: Path) -> None:
        with self._claiming:  # what one worker learns others wait for
            unknown = tuple(each for each in stage.files if each not in self._seconds)
            self._seconds.update({each: Future() for each in unknown})
        if unknown:
            try:
                seconds = self._learned(stage._replace(files=unknown), copy) / len(unknown)
            except BaseException as error:
                for each in unknown:
                    self._seconds[each].set_exception(error)
                raise
            for each in unknown:
                self._seconds[each].set_result(seconds)
        for each in stage.files:
            self._seconds[each].result()

    def _learned(self, stage: Stage, copy: Path) -> float:
        """How many seconds the tests have taken."""
        began = time.monotonic()
        # A test may fail once on a busy machine.
        if not any(self._seen(stage, copy) for _ in range(2)):
            raise RuntimeError(f"tests fail with nothing broken: {' '.join(stage.files)}")
        for each in stage.files:
            if "subprocess" in (copy / each).read_text():  # not all that it runs has been seen
                self._reach.learn_nothing(each)
        return time.monotonic() - began

    def _seen(self, stage: Stage, copy: Path) -> bool:
        with TemporaryDirectory(prefix="records-", dir=self._folder) as records:
            passed = run(copy, stage, _LONGEST, Path(records)) == 0
            if passed:
                self._reach.learn(Path(records), copy)
        return passed


def _listed() -> list[str]:
    """The files of the tree, those among them that are not committed yet."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "-co", "--exclude-standard"], cwd=ROOT, check=True, capture_output=True, text=True
    )
    return [name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]


def _copy_to(folder: Path) -> Path:
    for name in _listed():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    # Checked by what they were made from: by the time of a change, one within the same second is not seen.
    mode = py_compile.PycInvalidationMode.CHECKED_HASH
    compileall.compile_dir(str(folder / "slb"), quiet=1, invalidation_mode=mode)
    return folder


def outcome(mutant: Mutant, copies: Copies, tests: Tests, patience: float = 1.0) -> Outcome:
    """What becomes of one change by the near tests, or by the others. `patience`: times as long they may take."""
    with copies.one() as copy:
        near = stages(copy, mutant.path, is_near=True)
        for stage in near if tests == "near" else stages(copy, mutant.path)[len(near) :]:
            asked, seconds = copies.asked(mutant, stage, copy)
            if not asked.files:
                continue
            with _applied(mutant, copy / mutant.path):
                code = run(copy, asked, seconds * patience)
            if code is None:
                return "timed out"
            if code:
                return "stillborn" if code in _NOT_COLLECTED and not asked.processes else "caught"
    return "survived"


@contextmanager
def _applied(mutant: Mutant, file: Path) -> Iterator[None]:
    source = file.read_bytes()
    file.write_bytes(mutant.applied(source))
    try:
        yield
    finally:
        file.write_bytes(source)


def sample(paths: Sequence[str], seed: int) -> Iterator[Mutant]:
    """All changes of these files in the order of `seed`."""
    ranked: list[tuple[bytes, Mutant]] = []
    for path in paths:
        source = (ROOT / path).read_bytes()
        ranked.extend((each.rank(seed, source), each) for each in mutants(path, source))
    return (each for _, each in sorted(ranked, key=lambda pair: (pair[0], pair[1].start)))


class Progress:
    """What is known of some changes. What becomes known, in any thread, is printed and kept at once."""

    def __init__(self, changes: Sequence[Mutant], results: Results) -> None:
        self.found: dict[Mutant, Outcome] = {}
        self._changes, self._results = changes, results
        self._adding = Lock()
        self._source = {each.path: (ROOT / each.path).read_bytes() for each in changes}
        listed = tomllib.loads(_ARGUED.read_text())["mutant"]
        argued = {(each["path"], each["before"], each["after"]) for each in listed}
        for each in changes:
            source = self._source[each.path]
            is_argued = (each.path, *each.lines(source)) in argued
            known: Outcome | None = "argued" if is_argued else results.of(each, source)
            if known is not None:
                self.found[each] = known
                if known == "survived":
                    self._print(each, known)
        print(f"{len(self.found)} of {len(changes)} are known", flush=True)

    def left(self) -> list[Mutant]:
        """Those of which nothing is known, in their order."""
        return [each for each in self._changes if each not in self.found]

    def add(self, mutant: Mutant, outcome: Outcome) -> None:
        """This has become of a change that was left."""
        with self._adding:
            self.found[mutant] = outcome
            self._results.add(mutant, self._source[mutant.path], outcome)
            self._print(mutant, outcome)

    def _print(self, mutant: Mutant, outcome: Outcome) -> None:
        place = f"{mutant.path}:{mutant.line} {mutant.kind}"
        print(f"{time.strftime('%H:%M:%S')} {len(self.found)}/{len(self._changes)} {outcome}: {place}", flush=True)
        if outcome == "survived":
            print(mutant.diff(self._source[mutant.path]), flush=True)


def try_all(progress: Progress, folder: Path, workers: int, near: bool) -> None:
    """Try what is left, by the near tests first: they take seconds where the others take minutes."""
    copies, left = Copies(folder, workers), progress.left()
    if near:
        _round(left, "near", True, progress, copies, workers)
    else:
        left = _round(left, "near", False, progress, copies, workers)
        print(f"{len(left)} are not noticed by the near tests", flush=True)
        _round(left, "far", True, progress, copies, workers)


def _round(
    changes: Sequence[Mutant], tests: Tests, is_last: bool, progress: Progress, copies: Copies, workers: int
) -> list[Mutant]:
    """Try these, `workers` at once, and once more, one after another, what has timed out. Those that are left for
    the next round."""
    left: list[Mutant] = []
    late: list[Mutant] = []

    def try_one(mutant: Mutant, patience: float = 1.0) -> None:
        found = outcome(mutant, copies, tests, patience)
        if found == "survived" and not is_last:
            left.append(mutant)
        elif found == "timed out" and patience == 1.0:
            late.append(mutant)
        else:
            progress.add(mutant, found)

    with ThreadPoolExecutor(workers) as pool:
        running = [pool.submit(try_one, each) for each in changes]
        try:
            for done in as_completed(running):
                done.result()
        finally:
            pool.shutdown(cancel_futures=True)
    for each in late:
        try_one(each, _MORE_TIME)
    return left


def _results(folder: Path, near: bool, anew: bool) -> Results:
    """Of earlier runs; what the unit tests alone notice has a file of its own."""
    file = folder / ("near.jsonl" if near else "all.jsonl")
    if anew:
        file.unlink(missing_ok=True)
    read = [each for each in sorted(_listed()) if each.startswith(("slb/", "tests/"))]
    return Results(file, digest((ROOT / each).read_bytes() for each in read))


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.mutants")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--near", action="store_true", help="unit tests alone: minutes, where all take hours")
    parser.add_argument("--anew", action="store_true", help="forget what earlier runs have found")
    parser.add_argument("files", nargs="*", help="instead of all pure rooms, proxy and upstreams")
    chosen = parser.parse_args(arguments)
    changes = list(sample(chosen.files or sources(ROOT), chosen.seed))[: chosen.count]
    kept = ROOT / ".mutants"
    kept.mkdir(exist_ok=True)
    progress = Progress(changes, _results(kept, chosen.near, chosen.anew))
    if progress.left():
        with TemporaryDirectory(prefix="copies-", dir=kept) as folder:
            try_all(progress, Path(folder), chosen.workers, chosen.near)
    noticed, counted = share(progress.found)
    print(table(progress.found))
    print(f"seed {chosen.seed}: {noticed} noticed of {counted}, {noticed / (counted or 1):.1%}")
    return 0 if noticed >= _WANTED * counted else 1


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that tests that run are ended, too
    sys.exit(main(sys.argv[1:]))
