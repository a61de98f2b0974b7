"""Places on disk whose contents slb trusts: a server that answers there, a table that is served.

So no other user may own them or write to them. One that may only read finds addresses, and loses that. Symbolic
links are not followed, and of a file it is what was opened that is looked at: between a look at a name and its use
another may stand there."""

import grp
import os
import pwd
import re
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import structlog

from slb.errors import ConfigError

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW

IN_DATA_DIR = re.compile(r"valkey|valkey\.sock|(table|job-outcomes|instances|takeover)-.*")
"""What slb keeps in a `data_dir`, or beside a socket that has a directory of its own."""

IN_SERVERS = re.compile(
    r"appendonlydir|appendfsync-always|server\.log|\w+\.lock|valkey\.(sock|pid)|dump\.rdb|temp-.*"
)
"""What the embedded server and its users keep in its directory."""

_log = structlog.get_logger()


def make_private(directory: Path, setting: str) -> None:
    """Make `directory` for this user alone, mode 0700, or see that it is. Raises ConfigError, which names `setting`
    and what to do, where it is another user's too; OSError where it cannot be had."""
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    check_private(directory, setting)


def check_data_dir(directory: Path) -> None:
    """The same of a `data_dir` that is there. What cannot be kept there is reported later. Raises ConfigError."""
    with suppress(OSError):
        check_private(directory, "data_dir")


def check_can_be_made(directory: Path, setting: str) -> None:
    """See that this user could make `directory` and write to it, without making it. Raises ConfigError."""
    there = directory
    try:
        while not exists(there):
            there = there.parent
    except OSError as error:  # no permission to look, or a name that is too long
        raise ConfigError(f"{setting}: {directory} cannot be used: {error.strerror or error}") from None
    if not there.is_dir():
        raise ConfigError(f"{setting}: {directory} cannot be made: {there} is not a directory")
    if not os.access(there, os.W_OK | os.X_OK):
        raise ConfigError(f"{setting}: this user cannot write to {there}")


def exists(path: Path) -> bool:
    """Whether it is there; also of a link that leads nowhere. Raises OSError where that cannot be known."""
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def check_own(directory: Path, setting: str) -> os.stat_result:
    """See that `directory` is this user's, for others to read at most; its `lstat`. Raises ConfigError, OSError."""
    found = directory.lstat()
    if stat.S_ISLNK(found.st_mode):
        raise ConfigError(f"{setting}: {directory} is a symbolic link: name the directory it leads to")
    if fault := _fault(found):
        raise ConfigError(f"{setting}: {fault.format(directory)}")
    return found


def check_private(directory: Path, setting: str, ours: Callable[[str], object] = IN_DATA_DIR.fullmatch) -> None:
    """The same. A directory that others may read is closed to them, if it holds nothing but what slb keeps there,
    which is what `ours` finds: /var/lib has other users."""
    found = check_own(directory, setting)
    if not found.st_mode & _OTHERS:
        return
    opened = os.open(directory, _READ | os.O_DIRECTORY)
    try:
        if all(map(ours, os.listdir(opened))):
            _close_to_others(opened, found, directory, 0o700)
    finally:
        os.close(opened)


def check_contents(directory: Path, setting: str) -> None:
    """See that everything in `directory`, which is private now, was put there by this user: it may have stood open
    before. A socket of another user's would be taken for our own server's. Raises ConfigError, OSError."""
    for folder, folders, files in os.walk(directory, onerror=_raise):
        for name in (*folders, *files):
            path = Path(folder, name)
            with suppress(FileNotFoundError):  # a server that runs there makes and removes files
                found = path.lstat()
                if found.st_uid != os.geteuid() or stat.S_ISLNK(found.st_mode):
                    raise ConfigError(
                        f"{setting}: {path} is a link, or another user's: find out what put it there, and remove it"
                    )


def check_way_to(directory: Path, setting: str) -> None:
    """See that no other user may put another directory in the place of `directory`, which is named to a server that
    opens it later: on the way everything is root's or this user's, links too, and what others may write to is
    sticky, such as /tmp. Raises ConfigError, OSError."""
    for passed in _way(directory.absolute().parent):
        found = passed.lstat()
        if found.st_uid not in (0, os.geteuid()):
            raise ConfigError(
                f"{setting}: {passed} belongs to the user {found.st_uid}, who may replace what is in it: "
                f"chown {os.geteuid()} {passed}, or use another directory"
            )
        if classes := _may_replace(found):
            raise ConfigError(
                f"{setting}: others may replace what is in {passed} (mode {stat.S_IMODE(found.st_mode):04o}): "
                f"chmod {classes}-w {passed}, or use another directory"
            )


def _way(directory: Path) -> Iterator[Path]:
    """Each directory and each link that is gone through to reach `directory`, itself included. What a link leads to
    comes after the link: refusing that, it is never followed."""
    for passed in (*reversed(directory.parents), directory):
        yield passed
        if passed.is_symlink():
            yield from _way(passed.parent / passed.readlink())


def _may_replace(found: os.stat_result) -> str:
    """Which others may rename what is in this directory: `g`, `o`, both, or none; a link has no mode of its own."""
    if found.st_mode & stat.S_ISVTX or stat.S_ISLNK(found.st_mode):
        return ""
    group = found.st_mode & stat.S_IWGRP and not _is_own_group(found.st_gid)
    return "g" * bool(group) + "o" * bool(found.st_mode & stat.S_IWOTH)


def _is_own_group(gid: int) -> bool:
    """Whether it is this user's primary group, which lists no other user: with a umask of 002 home directories are
    open to that. Users that only share a primary group look the same."""
    if gid != os.getegid():
        return False
    with suppress(KeyError):  # in a container neither needs a name; a group without one lists no user
        listed = set(grp.getgrgid(gid).gr_mem)
        return not listed or listed == {_own_name()}
    return True


def _own_name() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return ""


def read_private(file: Path) -> tuple[bytes, float]:
    """The contents of `file`, and when it was changed. Raises OSError where it cannot be read, ValueError where it
    is no file of this user's alone. Closed to others that may read it."""
    opened = os.open(file, _READ | os.O_NONBLOCK)  # which would wait for a writer, were it a pipe
    try:
        found = os.fstat(opened)
        if not stat.S_ISREG(found.st_mode):
            raise ValueError("it is not a file")
        if fault := _fault(found):
            raise ValueError(fault.format(file))
        if found.st_mode & _OTHERS:
            _close_to_others(opened, found, file, 0o600)
        with os.fdopen(opened, "rb", closefd=False) as reading:  # which would not close what it does not take
            return reading.read(), found.st_mtime
    finally:
        os.close(opened)


def create_private(file: Path) -> int:
    """A new file for this user alone, mode 0600, open for writing. Raises OSError."""
    file.unlink(missing_ok=True)
    return os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)


def _fault(found: os.stat_result) -> str:
    """What is wrong with it, for `format` to name it in; nothing where it is this user's own."""
    if found.st_uid != os.geteuid():
        return f"{{0}} belongs to the user {found.st_uid}: chown {os.geteuid()} {{0}}, or use another"
    if found.st_mode & _OTHERS_WRITE:
        mode = stat.S_IMODE(found.st_mode)
        return f"others may write to {{0}} (mode {mode:04o}): if none has, chmod go-w {{0}}, or use another"
    return ""


def _close_to_others(opened: int, found: os.stat_result, path: Path, mode: int) -> None:
    os.fchmod(opened, mode)
    before = f"{stat.S_IMODE(found.st_mode):04o}"
    _log.warning("closed_to_others", path=str(path), mode=f"{mode:04o}", mode_before=before)


def _raise(error: OSError) -> None:
    raise error
