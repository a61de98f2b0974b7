"""What is broken, and which tests are to notice: the quickest first, the next only where these do not."""

import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

_PURE = (
    *("admission", "balance", "jobs", "proxy", "quota", "routing", "upstreams"),
    *("backoff.py", "cookies.py", "model.py", "names.py", "priorities.py", "quotas.py", "registration.py"),
    "setting_types.py",
)
_PURE_OF_CONTROL = (
    *("asks", "batch", "batch_builder", "behind", "deadline", "departed", "dirty", "epoch_tracker", "eviction"),
    *("granted", "heap", "history", "keys", "lane_state", "lane_timing", "old_tables", "orphans", "parts", "resp"),
    *("settings_faults", "skipped", "slices", "slots", "views", "written"),
)


_PROCESSES = 2
"""For tests with sockets and Redis, which wait most of the time: in all about as many as in `make test`."""


def _of_redis(*subjects: str) -> tuple[str, ...]:
    return tuple(f"tests/redis/test_{each}.py" for each in subjects)


_LONG = ("test_judge.py", "test_fuzz.py", "test_paths.py", "test_health.py", "test_hostile.py")
"""Take half of the time that `tests/proxy` takes."""

_LATE = (
    *("test_application_turns.py", "test_clients_that_leave.py", "test_cutting_off.py", "test_draining.py"),
    *("test_full_upstreams.py", "test_holding_back.py"),
    *("test_interims.py", "test_repeated.py", "test_retries.py"),
    *("test_trace_context.py", "test_untrusted_headers.py"),
)
"""Take half of the remaining time: run after the others, which notice most changes."""

_BEYOND = {
    "admission": (*_of_redis("ledger_above_cap", "ledger_queue", "ledger_unsure"), "tests/proxy/test_slots.py"),
    "balance": ("tests/client/*.py", "tests/proxy/test_ring*.py"),
    "control": _of_redis("evict*", "hostile_keys", "known_by_one", "ledger_*", "old_data", "registry", "sync"),
    "jobs": (*_of_redis("job*"), "tests/process/test_job*.py"),
    "proxy": ("tests/proxy/*.py",),
    "quota": _of_redis("quota_*"),
    "routing": ("tests/client/*.py", "tests/unit/health/*.py", "tests/proxy/test_ring*.py"),
    "upstreams": ("tests/upstreams/*.py", "tests/proxy/*.py"),
}
"""By room the tests with sockets and Redis that know most of it."""


class Stage(NamedTuple):
    """Tests that run together, in so many processes."""

    files: tuple[str, ...]
    processes: int = 0


def sources(root: Path) -> list[str]:
    """The files that are broken, as paths from `root`."""
    files = [path for name in _PURE for path in _python_files(root / "slb" / name)]
    files += [root / "slb" / "control" / f"{name}.py" for name in _PURE_OF_CONTROL]
    return [str(path.relative_to(root)) for path in files if path.exists()]


def _python_files(path: Path) -> list[Path]:
    return sorted(path.rglob("*.py")) if path.is_dir() else [path]


def stages(root: Path, source: str, is_near: bool = False) -> list[Stage]:
    """The tests of a file: its own; those that import it, and others of its room; and unless `is_near` those from
    further outside."""
    room = source.split("/")[1] if source.count("/") > 1 else ""
    name = Path(source).stem
    own = _found(root, [f"tests/unit/{room}/test_{name}.py"])
    module = re.escape(source.removesuffix(".py").replace("/", "."))
    anywhere = _found(root, ["tests/unit/**/*.py"])
    near = [each for each in anywhere if re.search(rf"\b{module}\b", _read(root / each))]
    near += _found(root, [f"tests/unit/{room}/*.py" if room else "tests/unit/*.py"])
    far = [] if is_near else _found(root, _BEYOND.get(room, ("tests/client/*.py",)))
    far.sort(key=lambda path: Path(path).name in _LATE)
    found: list[Stage] = []
    for files, processes in ((own, 0), (near, 0), (far, _PROCESSES)):
        earlier = {each for stage in found for each in stage.files}
        files = [each for each in dict.fromkeys(files) if each not in earlier]
        if files:
            found.append(Stage(tuple(files), processes))
    return found


def _found(root: Path, patterns: Sequence[str]) -> list[str]:
    tests = (path for pattern in patterns for path in sorted(root.glob(pattern)) if path.name.startswith("test_"))
    return [str(path.relative_to(root)) for path in tests if path.name not in _LONG]


@cache
def _read(path: Path) -> str:
    return path.read_text()
