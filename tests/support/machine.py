"""A systemd that runs one service, as the first process of namespaces of its own."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.support.waiting import patience, wait_until

_NEEDS = ("unshare", "nsenter", "systemctl")
_SYSTEMD = "/lib/systemd/systemd"
_SECONDS = 60.0

# Nothing that the machine of the tests keeps is written to, and none of its units is there to be started.
_BOOT = """
set -e
mount --make-rprivate /
mkdir -p /etc/systemd/system
for each in /run /var/lib /etc/systemd /lib/systemd/system /lib/systemd/system-generators; do
  mount -t tmpfs none $each
done
mkdir -p /run/systemd/system
cp -r "$1"/. /run/systemd/system
for each in sysinit basic shutdown only; do echo [Unit] > /run/systemd/system/$each.target; done
mount --make-rshared /
container=other exec "$2" --system --unit=only.target
"""
_NAMESPACES = ("--pid", "--fork", "--kill-child", "--mount", "--mount-proc", "--uts", "--ipc", "--cgroup")


def why_not() -> str:
    """Why none can run here; empty where one can."""
    if os.geteuid():
        return "only root may make namespaces"
    if Path("/run/systemd/system").exists():
        return "this machine has a systemd, whose control groups are not to be touched"
    if not all(map(shutil.which, _NEEDS)) or not Path(_SYSTEMD).exists():
        return "apt-get install systemd"
    tried = subprocess.run(["unshare", *_NAMESPACES, "mount", "-t", "tmpfs", "none", "/run"], check=False)
    return "namespaces are forbidden here" if tried.returncode else ""


class Machine:
    """`pid` is that of its systemd."""

    def __init__(self, pid: int) -> None:
        self._inside = ("nsenter", f"--target={pid}", "--pid", "--mount", "--uts", "--ipc", "--cgroup")

    def systemctl(self, *words: str) -> str:
        """What it prints. Raises CalledProcessError."""
        command = [*self._inside, "systemctl", *words]
        return subprocess.run(
            command, check=True, capture_output=True, text=True, timeout=patience(_SECONDS)
        ).stdout

    def shown(self, unit: str, what: str) -> str:
        """A property of a unit."""
        return self.systemctl("show", "--value", f"--property={what}", unit).strip()

    def kill(self, pid: str) -> None:
        """kill -9, by the number that a process has inside."""
        subprocess.run([*self._inside, "kill", "-KILL", pid], check=True)

    @property
    def is_up(self) -> bool:
        """Whether its systemd answers."""
        with suppress(subprocess.CalledProcessError):
            return self.systemctl("is-active", "only.target").strip() == "active"
        return False


@contextmanager
def machine(units: Path) -> Iterator[Machine]:
    """One that has the units of a folder, none of them started. At the end all of it is killed."""
    command = ["unshare", *_NAMESPACES, "bash", "-c", _BOOT, "boot", str(units), _SYSTEMD]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL) as unshared:
        try:
            children = Path(f"/proc/{unshared.pid}/task/{unshared.pid}/children")
            wait_until(lambda: bool(children.read_text()), what="namespaces")
            found = Machine(int(children.read_text()))
            wait_until(lambda: found.is_up, what="a systemd that answers")
            yield found
        finally:
            unshared.kill()
