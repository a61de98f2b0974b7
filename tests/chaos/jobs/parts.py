"""The processes of a run."""

import os
import signal
import socket
import subprocess
from pathlib import Path


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Part:
    """One process that may die, and begins again as it was."""

    def __init__(self, name: str, folder: Path, *command: str, **environment: str) -> None:
        self.name = name
        self._environment = {**os.environ, **environment}
        self._command = command
        self._log = (folder / f"{name}.log").open("ab")
        self.start()

    def start(self) -> None:
        self._process = subprocess.Popen(
            self._command,
            stdout=self._log,
            stderr=self._log,
            stdin=subprocess.DEVNULL,
            env=self._environment,
        )

    def send(self, number: int) -> None:
        os.kill(self._process.pid, number)

    def kill(self) -> None:
        self.send(signal.SIGKILL)
        self._process.wait()

    def close(self) -> None:
        self.kill()
        self._log.close()
