"""The process that is to follow this one, started by it: it has what a service manager gives to this one alone."""

import asyncio
import signal
import subprocess
import sys

import structlog

_FLAG = "--takeover"

_log = structlog.get_logger("slb.takeover")


def start_at_signal() -> None:
    """From now on SIGUSR2 starts a process as this one was started, from the program that is there by then; it
    takes this one's sockets."""
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR2, _start)


def _start() -> None:
    """The shell is gone at once, so that it is the service manager's child: systemd gives the main process of a
    service no time to stop where it is none of its own (KillMode=mixed)."""
    given = sys.orig_argv[1:]
    words = [sys.executable, *given, *(() if _FLAG in given else (_FLAG,))]
    try:
        subprocess.run(["/bin/sh", "-c", '"$@" &', "sh", *words], check=True)
    except (OSError, subprocess.SubprocessError) as error:
        _log.warning("successor_not_started", error=str(error))
    else:
        _log.info("successor_started")
