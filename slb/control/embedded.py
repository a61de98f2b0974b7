"""`embedded://`: one real Valkey server for all slb processes of a machine that share a data directory.

Each user holds a shared lock on `users.lock`; starting and stopping happen under `start.lock`; the last user out
stops the server. A server whose users all crashed is found alive by the next one and adopted."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import structlog

from slb.backoff import Backoff
from slb.control.locks import FileLock, wait_until
from slb.control.private import (
    IN_SERVERS,
    check_can_be_made,
    check_contents,
    check_own,
    check_private,
    check_way_to,
    exists,
    make_private,
)
from slb.control.valkey_process import ValkeyProcess
from slb.errors import ConfigError

_START_LOCK_TIME = 40.0
"""Seconds: longer than the slowest start or stop by another process."""

_REVIVE_INTERVAL = 0.2
_LONGEST_REVIVE_INTERVAL = 10.0
"""Seconds between two looks, and at most between two tries to start it that fail, besides; doubled with each."""

_log = structlog.get_logger()


class EmbeddedServer:
    """This process's use of the server of `data_dir`. `process` is known once acquired. With `revive`, a server
    that died is started again."""

    process: ValkeyProcess

    def __init__(self, data_dir: Path, revive: bool = True) -> None:
        self.directory = (data_dir / "valkey").absolute()
        self._revive = revive
        self._users: FileLock | None = None
        self._reviver: asyncio.Task[None] | None = None

    def check(self) -> None:
        """See that the server could be started, without making or changing anything. Raises ConfigError."""
        check_can_be_made(self.directory, "data_dir")
        try:
            there = [each for each in (self.directory.parent, self.directory) if exists(each)]
            for directory in there:
                check_own(directory, "data_dir")
            upwards = (self.directory, *self.directory.parents)
            check_way_to(next(each for each in upwards if exists(each.parent)), "data_dir")
            if self.directory in there:
                check_contents(self.directory, "data_dir")
        except OSError as error:
            raise self._unusable(error) from None

    @property
    def url(self) -> str:
        """Where the server listens: `unix:///.../valkey.sock`."""
        return f"unix://{self.process.socket}"

    async def acquire(self) -> str:
        """Start the server or join the one that runs; its URL; cancelled, leave it. Raises ConfigError."""
        try:
            await to_its_end(self._enter)
        except asyncio.CancelledError:
            await self.release()
            raise
        if self._revive:
            self.resume()
        return self.url

    async def write_first(self) -> None:
        """From its next start on, whoever starts it, the server writes each change to its disk before it answers.
        Raises OSError."""
        await to_its_end(self.process.write_first)

    async def release(self) -> None:
        """Leave the server; the last one out stops it."""
        await self.suspend()
        if self._users is not None:
            await to_its_end(lambda: self._under_start_lock(self._leave))

    async def suspend(self) -> None:
        """Stop restarting the server: from now on its end is intended."""
        if self._reviver is not None:
            self._reviver.cancel()
            with suppress(asyncio.CancelledError):
                await self._reviver
            self._reviver = None

    def resume(self) -> None:
        """Restart the server whenever it ends."""
        if self._reviver is None:
            self._reviver = asyncio.get_running_loop().create_task(self._keep_alive(), name="embedded-valkey")

    async def _keep_alive(self) -> None:
        loop, backoff, logged = asyncio.get_running_loop(), Backoff(), ""
        pause = _REVIVE_INTERVAL
        while True:
            await asyncio.sleep(pause)
            if self._lives():
                pause, logged = _REVIVE_INTERVAL, ""
                continue
            if not logged:
                _log.warning("embedded_valkey_died", directory=str(self.directory))
            pause, fault = _REVIVE_INTERVAL, ""
            try:
                await to_its_end(lambda: self._under_start_lock(self.process.start))
            except ConfigError as error:
                fault = str(error)
                if fault != logged:
                    _log.error("embedded_valkey_not_revived", error=fault)
                pause += backoff.pause(loop.time(), pause, _LONGEST_REVIVE_INTERVAL, is_calm=not logged)
            logged = fault

    def _lives(self) -> bool:
        try:
            return self.process.alive()
        except OSError:  # no descriptor left to look with: nothing is known, and there is nothing to start it with
            return True

    def _enter(self) -> None:
        """A server that listens here is taken for ours, and adopted: no other user can have put it there."""
        try:
            make_private(self.directory.parent, "data_dir")
            self.directory.mkdir(exist_ok=True, mode=0o700)
            check_private(self.directory, "data_dir", IN_SERVERS.fullmatch)
            check_way_to(self.directory, "data_dir")
            check_contents(self.directory, "data_dir")
        except OSError as error:
            raise self._unusable(error) from None
        self._under_start_lock(self._join)

    def _unusable(self, error: OSError) -> ConfigError:
        return ConfigError(f"data_dir: the embedded Valkey cannot use {self.directory}: {error}")

    def _under_start_lock(self, action: Callable[[], Any]) -> None:
        try:
            self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            lock = FileLock(self.directory / "start.lock")
            try:
                if not wait_until(lock.try_exclusive, _START_LOCK_TIME):
                    raise ConfigError(f"data_dir: another process has held {self.directory}/start.lock too long")
                action()
            finally:
                lock.release()
        except OSError as error:
            raise self._unusable(error) from None

    def _join(self) -> None:
        self.process = ValkeyProcess(self.directory)
        users = FileLock(self.directory / "users.lock")
        try:
            wait_until(users.try_shared, _START_LOCK_TIME)
            self.process.start()
        except BaseException:
            users.release()
            raise
        self._users = users

    def _leave(self) -> None:
        users, self._users = self._users, None
        if users is None:
            return
        try:
            if users.try_exclusive():
                self.process.stop()
        finally:
            users.release()


async def to_its_end(work: Callable[[], None]) -> None:
    """Run `work` in a thread, and leave when it has ended, also where the caller is cancelled: a server that it
    started later would have no user."""
    running = asyncio.create_task(asyncio.to_thread(work))
    cancelled: asyncio.CancelledError | None = None
    while not running.done():
        try:
            await asyncio.wait((running,))
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled from running.exception()
    running.result()
