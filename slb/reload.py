"""Settings read again on SIGHUP, or when their files change. All apply at once, or none where any is invalid."""

import asyncio
import signal
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import structlog

from slb.config import Settings
from slb.errors import ConfigError
from slb.lifecycle import set_within

LOOK_EVERY = 1.0
"""Seconds between two looks at the files; one that has changed is read when it was the same at two looks."""

NEEDS_RESTART = frozenset(
    {
        *(
            "listen",
            "api",
            "redis_url",
            "workers",
            "roles",
            "extproc_listen",
            "name",
            "zone",
            "data_dir",
            "proxy_protocol",
        ),
        *("tls_certificates", "upstream_ca", "upstream_certificate", "upstream_key", "log_format", "quota_fail"),
        *("quota_lease", "quota_longest_wait", "jobs_durability", "jobs_tasks_queues", "jobs_tasks_url"),
        *(
            "jobs_tasks_account",
            "jobs_tasks_secret",
            "jobs_tasks_api",
            "jobs_tasks_keys",
            "advertise",
            "advertise_weight",
        ),
        *("dns_listen",),
    }
)
"""What a process is built around. (The contents of certificate files are followed all the same.)"""

_log = structlog.get_logger("slb.reload")


@dataclass(frozen=True, slots=True)
class Source:
    """Where settings come from: how to read them all again (raises ConfigError), and the files among it."""

    load: Callable[[], Settings]
    files: Sequence[Path] = ()


def source_files(config: Path | None, environ: Mapping[str, str]) -> list[Path]:
    named = [Path(value) for name, value in environ.items() if name.startswith("SLB_") and name.endswith("_FILE")]
    return [*([config] if config else []), *named]


async def hold(apply: Callable[[Settings], Awaitable[None]], wanted: Settings, before: Settings) -> Settings:
    """Apply `wanted`, and return it. Where that raises, apply those of `before` again, and raise."""
    try:
        await apply(wanted)
    except Exception:
        await apply(before)
        raise
    return wanted


class Reloader:
    """`apply` applies settings in a process; `count` gets how each try ended, `applied` or `refused`."""

    def __init__(
        self,
        current: Settings,
        source: Source,
        apply: Callable[[Settings], Awaitable[None]],
        count: Callable[[str], None],
        look_every: float = LOOK_EVERY,
    ) -> None:
        self._current = current
        self._source = source
        self._apply = apply
        self._count = count
        self._look_every = look_every
        self._seen = self._look()

    async def run(self, asked: asyncio.Event) -> None:
        while True:
            if await self._is_due(asked):
                asked.clear()
                self._seen = self._look()
                await self.reload()

    async def reload(self) -> None:
        try:
            await self._hold(await asyncio.to_thread(self._source.load))
        except ConfigError as error:
            self._count("refused")
            _log.error("settings_refused", error=str(error))
        except Exception as error:  # noqa: BLE001 -- logged; what held before goes on
            self._count("refused")
            _log.exception("settings_refused", error=repr(error))

    async def _hold(self, read: Settings) -> None:
        changed = [name for name in Settings.model_fields if getattr(read, name) != getattr(self._current, name)]
        later = [name for name in changed if name in NEEDS_RESTART]
        kept = {name: getattr(self._current, name) for name in later}
        self._current = await hold(self._apply, read.model_copy(update=kept), self._current)
        self._count("applied")
        now = [name for name in changed if name not in NEEDS_RESTART]
        if later:
            _log.warning("settings_need_restart", names=later)
        if now or not later:
            _log.info("settings_reloaded", names=now)

    async def _is_due(self, asked: asyncio.Event) -> bool:
        await set_within(asked, self._look_every)
        if asked.is_set():
            return True
        found = self._look()
        if found == self._seen:
            return False
        # The file may still be written: wait until a look finds what the one before it found.
        await asyncio.sleep(self._look_every)
        return self._look() == found or asked.is_set()

    def _look(self) -> list[tuple[int, int, int] | None]:
        return [_print_of(file) for file in self._source.files]


def reload_on_hangup() -> asyncio.Event:
    """An event that is set at each SIGHUP of this process."""
    asked = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, asked.set)
    return asked


def _print_of(file: Path) -> tuple[int, int, int] | None:
    """A fingerprint that changes with the file; None where there is no file."""
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
