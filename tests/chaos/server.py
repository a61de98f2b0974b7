"""The Redis of a long run: the embedded Valkey, or any server program; with older data to come back with."""

import shutil
from functools import cached_property
from pathlib import Path

from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as Cut
from redis.retry import Retry

from slb.control.valkey_process import ValkeyProcess
from slb.errors import ConfigError
from tests.support.valkey import Valkey

_DATA, _COPY = "appendonlydir", "copy"
_TRIES = 3


class _Program(ValkeyProcess):
    """A server run by the program at `program`."""

    def __init__(self, program: Path, directory: Path, options: dict[str, str]) -> None:
        super().__init__(directory, options)
        self._program = program

    def _command(self) -> list[str]:
        return [str(self._program), *super()._command()[1:]]


class Server(Valkey):
    """`program`: None for the embedded Valkey."""

    def __init__(self, program: Path | None) -> None:
        self._program = program
        try:
            super().__init__()
        except ConfigError:
            shutil.rmtree(self.directory)
            raise

    def _made(self, options: dict[str, str]) -> ValkeyProcess:
        if self._program is None:
            return super()._made(options)
        return _Program(self._program, self.directory, options)

    @cached_property
    def admin(self) -> Redis:  # one for the whole run, that connects again when it is cut
        client = Redis(
            unix_socket_path=str(self.process.socket),
            decode_responses=True,
            protocol=2,
            retry=Retry(NoBackoff(), _TRIES, supported_errors=(Cut,)),
        )
        self._clients.append(client)
        return client

    @property
    def version(self) -> str:
        """As the server names itself."""
        found = self.admin.info("server")
        name = "valkey" if "valkey_version" in found else "redis"
        return f"{name} {found[f'{name}_version']}"

    def keep_copy(self) -> None:
        """Put aside what it has now; its file is whole but for a last entry that is being written."""
        shutil.rmtree(self.directory / _COPY, ignore_errors=True)
        shutil.copytree(self.directory / _DATA, self.directory / _COPY)

    def return_to_copy(self) -> None:
        """Of a killed server: it will start with what was put aside."""
        self.lose_data()
        (self.directory / _COPY).rename(self.directory / _DATA)
