"""Lines on the disk that outlive the process which wrote them: the next one that starts goes on with them.
Everything here blocks, and raises OSError where the disk does."""

import fcntl
import os
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from pathlib import Path
from uuid import uuid4

import structlog

from slb.control.locks import FileLock
from slb.control.private import create_private, make_private, read_private

_log = structlog.get_logger()


class Orphan:
    """A file of a process that has ended, and its lines; locked by this one, which may `remove` it."""

    def __init__(self, path: Path, lock: FileLock, lines: Sequence[bytes]) -> None:
        self.lines = lines
        self._path = path
        self._lock = lock

    def remove(self) -> None:
        """Remove the file."""
        self._path.unlink(missing_ok=True)
        self._lock.release()


class KeptLines:
    """This process's file in `directory`, made with the first line. `kind` is what its name begins with; `url`
    which Redis the lines are for: those for another are not found. Its lock lives as long as the process."""

    def __init__(self, directory: Path, kind: str, url: str) -> None:
        self._directory = directory
        self._kind = f"{kind}-"
        self._prefix = f"{kind}-{blake2b(url.encode(), digest_size=6).hexdigest()}-"
        self.path = self._new_path()
        self._fd: int | None = None

    def append(self, lines: Sequence[bytes]) -> None:
        """Once this returns they are on the disk. The empty line before them ends one that a full disk has cut."""
        fd = self._opened()
        text = memoryview(b"\n" + b"\n".join(lines) + b"\n")
        while text:
            text = text[os.write(fd, text) :]
        os.fsync(fd)

    def clear(self) -> None:
        """Let no line be there, and no file. The next line makes one with another name: a process that begins may
        have this one open, and removes what it has found empty."""
        if self._fd is not None:
            os.ftruncate(self._fd, 0)
            self.close()
            self.path = self._new_path()

    def close(self) -> None:
        """Give the file up: empty it goes, with lines in it the next process finds it."""
        if self._fd is None:
            return
        if os.fstat(self._fd).st_size == 0:
            self.path.unlink(missing_ok=True)
        os.close(self._fd)
        self._fd = None

    def orphans(self) -> list[Orphan]:
        """The files that processes left which have ended. One that cannot be read is logged, and left. Empty ones
        for another Redis go: nobody may ever look for them."""
        found = []
        for path in self._others():
            lock, is_ours = FileLock(path), path.name.startswith(self._prefix)
            try:
                if (is_ours or path.stat().st_size == 0) and lock.try_exclusive():
                    lines = [line for line in read_private(path)[0].split(b"\n") if line]
                    if is_ours:
                        found.append(Orphan(path, lock, lines))
                        continue
                    if not lines:
                        path.unlink()
            except (OSError, ValueError) as error:
                _log.warning("kept_lines_unusable", file=str(path), error=str(error))
            lock.release()
        return found

    def _others(self) -> Iterator[Path]:
        try:
            names = sorted(os.listdir(self._directory))
        except FileNotFoundError:
            return
        for name in names:
            if name.startswith(self._kind) and name.endswith(".jsonl") and name != self.path.name:
                yield self._directory / name

    def _new_path(self) -> Path:
        return self._directory / f"{self._prefix}{uuid4().hex}.jsonl"

    def _opened(self) -> int:
        """It has its name once it is locked: a process that starts would take it for an orphan."""
        if self._fd is None:
            make_private(self._directory, "data_dir")
            unnamed = self.path.with_suffix(".new")
            fd = create_private(unnamed)
            fcntl.flock(fd, fcntl.LOCK_EX)
            unnamed.rename(self.path)
            self._fd = fd
            _sync(self._directory)
        return self._fd


def _sync(directory: Path) -> None:
    """So that the file's name is on the disk too."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
