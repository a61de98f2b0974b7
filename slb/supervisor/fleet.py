"""The workers as one instance: their metrics added up, their traffic, whether any of them is ready."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Any

import orjson
import structlog
from aiohttp import ClientError, ClientSession, ClientTimeout, UnixConnector
from yarl import URL

from slb.admission.shown import LedgerShown
from slb.observe.exposition import OPEN_METRICS
from slb.supervisor.sums import Sums, Traffic, added, combined, lasting, no_traffic, worst
from slb.supervisor.workers import Worker

_TIMEOUT = ClientTimeout(total=2)
_INTERVAL = 1.0  # seconds between two looks at the workers' /status

_log = structlog.get_logger("slb.supervisor")


class Fleet:
    """Reads the workers' APIs over their unix sockets. `own_metrics`: the supervisor's. `show_inflight` gets every
    second how many requests each upstream has in flight."""

    def __init__(
        self,
        workers: Sequence[Worker],
        sums: Sums,
        own_metrics: Callable[[bool], Awaitable[bytes]],
        show_inflight: Callable[[Mapping[str, int]], None],
    ) -> None:
        self._workers = workers
        self._sums = sums
        self._own_metrics = own_metrics
        self._show_inflight = show_inflight
        self._seen: dict[int, dict[str, Any]] = {}  # by worker its last /status
        self._ended = no_traffic()
        self._reading = asyncio.Lock()

    def ready(self) -> bool:
        return any(worker.ready for worker in self._workers)

    def worker_ended(self, worker: Worker) -> None:
        """What a dead worker counted stays in the sums."""
        self._sums.ended((worker.index, worker.life))
        last = self._seen.pop(worker.index, None)
        if last is not None:
            self._ended = added((self._ended, lasting(last["traffic"])))

    async def metrics_text(self, open_metrics: bool) -> bytes:
        """All workers' metrics, added up. Scrapes do not overlap: what is read first has to be added first. Workers
        write OpenMetrics, which takes nearly twice as long to read, only where they may have exemplars."""
        traces = open_metrics and any(worker.job.settings.trace_endpoint for worker in self._workers)
        async with self._reading:
            for worker, text in await self._read_living("/metrics", OPEN_METRICS if traces else "*/*"):
                self._sums.read((worker.index, worker.life), text.decode())
            self._sums.read((-1, 0), (await self._own_metrics(open_metrics)).decode())
            return self._sums.text(open_metrics)

    def status_extra(self) -> dict[str, Any]:
        """For /status: the workers, and the traffic and health that all of them saw as of a second ago."""
        shown = {"workers": [worker.shown() for worker in self._workers], "traffic": self._all_traffic()}
        health = [each["health"] for each in self._seen.values()]
        return {**shown, "health": worst(health)} if health else shown

    def ledger(self) -> LedgerShown:
        """What all workers together hold and wait for, as of a second ago."""
        return combined(each["ledger"] for each in self._seen.values())

    async def answers(self, path: str) -> list[Any]:
        """The JSON that each ready worker answers to GET of `path`; None for one that gave none."""
        return [None if text is None else orjson.loads(text) for _, _, text in await self._read_all(path)]

    async def watch(self) -> None:
        while True:
            for worker, text in await self._read_living("/status"):
                self._seen[worker.index] = orjson.loads(text)
            self._show_inflight(self._all_traffic()["inflight_by_upstream"])
            await asyncio.sleep(_INTERVAL)

    def _all_traffic(self) -> Traffic:
        return added((self._ended, *(each["traffic"] for each in self._seen.values())))

    async def _read_living(self, path: str, accept: str = "*/*") -> list[tuple[Worker, bytes]]:
        return [
            (worker, text)
            for worker, life, text in await self._read_all(path, accept)
            if text is not None and worker.life == life and worker.pid is not None
        ]

    async def _read_all(self, path: str, accept: str = "*/*") -> list[tuple[Worker, int, bytes | None]]:
        return await asyncio.gather(*(self._read(worker, path, accept) for worker in self._workers if worker.ready))

    async def _read(self, worker: Worker, path: str, accept: str) -> tuple[Worker, int, bytes | None]:
        """The worker, its life that was asked, and its answer; None for none, or 404: it may be new elsewhere."""
        life, headers = worker.life, {"Accept": accept}
        try:
            async with (
                ClientSession(connector=UnixConnector(str(worker.job.api_path)), timeout=_TIMEOUT) as session,
                session.get(URL(f"http://localhost{path}", encoded=True), headers=headers) as reply,
            ):
                if reply.status == HTTPStatus.NOT_FOUND:
                    return worker, life, None
                reply.raise_for_status()
                return worker, life, await reply.read()
        except (ClientError, OSError, TimeoutError) as error:
            _log.warning("worker_silent", number=worker.index, path=path, error=str(error) or type(error).__name__)
            return worker, life, None
