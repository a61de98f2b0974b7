"""Settings read again on SIGHUP, or when their files change. All apply at once, or none where any is invalid."""

import asyncio
import signal
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

import structlog

from slb import systemd
from slb.changed_files import LOOK_EVERY, ChangedFiles, Print, print_of
from slb.config import Settings
from slb.errors import ConfigError

NEEDS_RESTART = frozenset(
    {
        *(
            "listen",
            "api",
            "takeover",
            "redis_url",
            "workers",
            "roles",
            "name",
            "zone",
            "data_dir",
            "proxy_protocol",
        ),
        *("tls_certificates", "api_tls_certificates", "upstream_ca", "upstream_certificate", "upstream_key"),
        *("log_format", "quota_fail"),
        *("quota_lease", "quota_longest_wait", "jobs_durability", "jobs_tasks_queues", "jobs_tasks_url"),
        *("jobs_tasks_account", "jobs_tasks_secret", "jobs_tasks_api", "jobs_tasks_keys", "advertise"),
        *("advertise_weight", "dns_listen", "extproc_listen", "discovery_file_path", "discovery_empty_grace"),
        *(f"discovery_kubernetes_{name}" for name in ("routes", "namespace", "selector", "family", "annotations")),
        *(f"discovery_kubernetes_{name}" for name in ("api_server", "token_file", "ca")),
    }
)
"""What a process is built around. (The contents of certificate files are followed all the same.)"""

_log = structlog.get_logger("slb.reload")


class Source:
    """Where settings come from. `read` reads them all (raises ConfigError), and tells of each file before it does.
    `seen`: the files of the last time, and what they were then."""

    def __init__(self, read: Callable[[Callable[[Path], None]], Settings]) -> None:
        self._read = read
        self.seen: Mapping[Path, Print] = {}

    def load(self) -> Settings:
        seen: dict[Path, Print] = {}
        try:
            return self._read(lambda file: seen.update({file: print_of(file)}))
        finally:  # one that was refused for a file is read again when that changes
            self.seen = seen


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

    async def run(self, asked: asyncio.Event) -> None:
        while True:
            seen = self._source.seen
            await ChangedFiles(seen, self._look_every, seen).changed(asked)
            await self.reload()

    async def reload(self) -> None:
        systemd.notify_reloading()
        try:
            await self._hold(await asyncio.to_thread(self._source.load))
        except ConfigError as error:
            self._count("refused")
            _log.error("settings_refused", error=str(error))
        except Exception as error:  # noqa: BLE001 -- logged; what held before goes on
            self._count("refused")
            _log.exception("settings_refused", error=repr(error))
        systemd.notify(READY=1)

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


def reload_on_hangup() -> asyncio.Event:
    """An event that is set at each SIGHUP of this process."""
    asked = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, asked.set)
    return asked
