"""A seeded sample of small changes to the code, each tried against the tests that should notice.

    python -m tools.mutants [--seed N] [--count N] [--workers N] [--near] [FILE...]    # what `make mutants` runs

Prints each change and what became of it, and how many were noticed; ends with 1 where that is less than 90 %. Test
files that do not run the function of a change are not asked about it. One that makes no difference is argued in
argued.toml, and not tried. The place of a change in the sample depends on nothing but itself and the seed.
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
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue
from tempfile import TemporaryDirectory
from typing import Literal

from tools.mutants.edits import Mutant, mutants
from tools.mutants.reach import Reach
from tools.mutants.rooms import Stage, sources, stages

ROOT = Path(__file__).resolve().parent.parent.parent
_ARGUED = Path(__file__).with_name("argued.toml")
_WANTED = 0.9
_LONGEST = 1800.0
"""Seconds for tests with nothing broken."""
_LAST_STEPS = 30.0
"""Seconds for what an interrupted test still has to end."""
_PYTEST = (
    *("-m", "pytest", "-x", "-q", "-p", "no:randomly", "--hypothesis-seed=0", "--no-header", "--tb=no"),
    "--timeout=120",  # seconds for one test
)
_NOT_COLLECTED = (2, 4)
"""How pytest ends where a test file cannot be imported. So it does where one of several processes has failed."""

Outcome = Literal["caught", "timed out", "survived", "stillborn"]


class Copies:
    """Copies of the tree, one for each worker; and how long each test file takes with nothing broken, and what it
    runs."""

    def __init__(self, folder: Path, workers: int) -> None:
        self._free: SimpleQueue[Path] = SimpleQueue()
        self._reach = Reach()
        self._seconds: dict[str, float] = {}
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
        unknown = stage._replace(files=tuple(each for each in stage.files if each not in self._seconds))
        if unknown.files:
            began = time.monotonic()
            self._learn(unknown, copy)
            share = (time.monotonic() - began) / len(unknown.files)
            self._seconds.update(dict.fromkeys(unknown.files, share))
        files = self._reach.of(mutant, (ROOT / mutant.path).read_bytes(), stage.files)
        seconds = sum(self._seconds[each] for each in files)
        if len(files) < stage.processes:  # starting so many would take longer
            return Stage(files), 30 + 4 * seconds * stage.processes
        return Stage(files, stage.processes), 30 + 4 * seconds

    def _learn(self, stage: Stage, copy: Path) -> None:
        with TemporaryDirectory(prefix="slb-mutants-") as records:
            code = _run(copy, stage, _LONGEST, Path(records))
            self._reach.learn(Path(records), copy)
        if code != 0 and _run(copy, stage, _LONGEST) != 0:
            raise RuntimeError(f"tests fail with nothing broken: {' '.join(stage.files)}")
        for each in stage.files:
            if code or "subprocess" in (copy / each).read_text():  # not all that it runs has been seen
                self._reach.learn_nothing(each)


def _copy_to(folder: Path) -> Path:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "-co", "--exclude-standard"], cwd=ROOT, check=True, capture_output=True, text=True
    )
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    # Checked by what they were made from: by the time of a change, one within the same second is not seen.
    mode = py_compile.PycInvalidationMode.CHECKED_HASH
    compileall.compile_dir(str(folder / "slb"), quiet=1, invalidation_mode=mode)
    return folder


def _run(copy: Path, stage: Stage, seconds: float, records: Path | None = None) -> int | None:
    """How pytest ends; None where it does not in time. What its tests run is written to `records`."""
    processes = ("-n", str(stage.processes)) if stage.processes else ("-p", "no:xdist")
    environment = {**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
    recorder: tuple[str, ...] = ()
    if records is not None:
        environment["SLB_MUTANTS_RECORD"] = str(records / "record")
        recorder = ("-p", "tools.mutants.recorder")
    running = subprocess.Popen(
        [sys.executable, *_PYTEST, *recorder, *processes, *stage.files],
        cwd=copy,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        return running.wait(seconds)
    except subprocess.TimeoutExpired:
        return None
    finally:
        if running.poll() is None:
            _end(running)


def _end(running: subprocess.Popen[bytes]) -> None:
    """Interrupt it, so that its tests end what they have started."""
    running.send_signal(signal.SIGINT)
    try:
        running.wait(_LAST_STEPS)
    except subprocess.TimeoutExpired:
        os.killpg(running.pid, signal.SIGKILL)
        running.wait()


def outcome(mutant: Mutant, copies: Copies, near: bool) -> Outcome:
    """What becomes of one change. `near`: by the unit tests alone."""
    with copies.one() as copy:
        for stage in stages(copy, mutant.path, near):
            asked, seconds = copies.asked(mutant, stage, copy)
            if not asked.files:
                continue
            with _applied(mutant, copy / mutant.path):
                code = _run(copy, asked, seconds)
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
    """All changes of these files in the order of `seed`, without those that are argued."""
    listed = tomllib.loads(_ARGUED.read_text())["mutant"]
    argued = {(each["path"], each["before"], each["after"]) for each in listed}
    ranked: list[tuple[bytes, Mutant]] = []
    for path in paths:
        source = (ROOT / path).read_bytes()
        found = (each for each in mutants(path, source) if (path, *each.lines(source)) not in argued)
        ranked.extend((each.rank(seed, source), each) for each in found)
    return (each for _, each in sorted(ranked, key=lambda pair: (pair[0], pair[1].start)))


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.mutants")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--near", action="store_true", help="unit tests alone: minutes, where all take hours")
    parser.add_argument("files", nargs="*", help="instead of all pure rooms, proxy and upstreams")
    chosen = parser.parse_args(arguments)
    tried = list(sample(chosen.files or sources(ROOT), chosen.seed))[: chosen.count]
    counted: Counter[Outcome] = Counter()
    with TemporaryDirectory(prefix="slb-mutants-") as folder, ThreadPoolExecutor(chosen.workers) as pool:
        copies = Copies(Path(folder), chosen.workers)
        running = {pool.submit(outcome, mutant, copies, chosen.near): mutant for mutant in tried}
        try:
            for done in as_completed(running):
                counted[done.result()] += 1
                print(f"{counted.total()}/{len(tried)} ", end="")
                _tell(running[done], done.result())
        finally:
            pool.shutdown(cancel_futures=True)
    noticed = counted["caught"] + counted["timed out"]
    share = noticed / ((noticed + counted["survived"]) or 1)
    print(f"seed {chosen.seed}: {noticed} caught of {noticed + counted['survived']}, {share:.1%}; {dict(counted)}")
    return 0 if share >= _WANTED else 1


def _tell(mutant: Mutant, found: Outcome) -> None:
    source = (ROOT / mutant.path).read_bytes()
    print(f"{found}: {mutant.path}:{mutant.line} {mutant.kind}", flush=True)
    if found == "survived":
        print(mutant.diff(source), flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
