"""Traced requests on their way to the collector: OTLP over HTTP, in JSON, many in one POST.

What waits is bounded in spans and bytes, and one POST is under way at a time. So a collector that is slow, or away,
costs spans, which are counted, and nothing else.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from random import Random
from time import time_ns

import aiohttp
import orjson
import structlog

from slb.lifecycle import set_within
from slb.observe.metrics import TraceCounts
from slb.observe.spans import export_body
from slb.observe.throttle import Seldom
from slb.observe.trace import Ended

MOST_SPANS = 8192
MOST_BYTES = 8 << 20
"""Of what waits, about."""
_BATCH = 500
"""Spans of one POST: its body is made in a few milliseconds."""
_EVERY = 2.0
"""Seconds that the first span of a POST waits for others."""
_WITHIN = 10.0
"""Seconds of one POST."""
_PAUSES = (0.5, 2.0, 5.0)
"""Seconds between the tries of one POST; then its spans are dropped."""
_TRY_AGAIN = frozenset({429, 502, 503, 504})
"""As OTLP has it: after any other status the collector would not take them the next time either."""
_MOST_READ = 64 * 1024
_QUIET = 60.0
"""Seconds between two lines of the log about failures."""

_log = structlog.get_logger("slb.trace")


class _NotTaken(Exception):
    """`again`: it may be taken at another try."""

    def __init__(self, why: str, again: bool) -> None:
        super().__init__(why)
        self.again = again


class TraceExporter:
    """`resource`: attributes of this process. `clock`: that of all times, in seconds. `url` and `headers`: where
    spans go, and with what. All but the clock may be set anew at any time."""

    url = ""
    headers: Mapping[str, str] = {}

    def __init__(
        self,
        resource: Mapping[str, str],
        scope: tuple[str, str],
        counts: TraceCounts,
        clock: Callable[[], float],
        rng: Random,
        pauses: tuple[float, ...] = _PAUSES,
        every: float = _EVERY,
    ) -> None:
        self.resource = resource
        self._scope = scope
        self._counts = counts
        self._clock = clock
        self._rng = rng
        self._pauses = pauses
        self._every = every
        self._waiting: deque[Ended] = deque()
        self._spans = self._bytes = 0
        self._some, self._enough, self._leaving = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._all_gone = asyncio.Event()
        self._all_gone.set()
        self._session: aiohttp.ClientSession | None = None
        self._failures: Seldom[str] = Seldom(_QUIET, _report)

    def add(self, ended: Ended) -> None:
        """Send its spans soon, or count them where too many wait."""
        if self._spans >= MOST_SPANS or self._bytes >= MOST_BYTES:
            self._counts.spans["full"] += ended.most_spans
            return
        self._waiting.append(ended)
        self._spans += ended.most_spans
        self._bytes += ended.size
        if len(self._waiting) == 1:
            self._all_gone.clear()
            self._some.set()
        if self._spans >= _BATCH:
            self._enough.set()

    async def run(self) -> None:
        try:
            while True:
                await self._some.wait()
                if not self._leaving.is_set():
                    await set_within(self._enough, self._every)
                await self._send(self._taken())
                if not self._waiting:
                    self._some.clear()
                    self._all_gone.set()
        finally:
            if self._session is not None:
                await self._session.close()

    async def leave(self, seconds: float) -> None:
        """Send what waits, each POST tried once, for at most so many seconds; then drop the rest. `run` goes on
        until it is cancelled."""
        self._leaving.set()
        self._enough.set()
        await set_within(self._all_gone, seconds)
        left = sum(each.most_spans for each in self._waiting)
        self._waiting.clear()
        if not self._all_gone.is_set():
            self._counts.spans["stopped"] += left
            _log.warning("spans_left_behind", spans=left)

    def _taken(self) -> list[Ended]:
        """Those of the next POST."""
        taken: list[Ended] = []
        spans = 0
        while self._waiting and spans < _BATCH:
            ended = self._waiting.popleft()
            taken.append(ended)
            spans += ended.most_spans
            self._bytes -= ended.size
        self._spans -= spans
        if self._spans < _BATCH and not self._leaving.is_set():
            self._enough.clear()
        return taken

    async def _send(self, batch: list[Ended]) -> None:
        try:
            spans, body = self._made(batch)
        except Exception:  # noqa: BLE001 -- logged: a fault in traces ends no traffic
            self._counts.spans["failed"] += sum(each.most_spans for each in batch)
            _log.exception("spans_broke")
            return
        for pause in (*self._pauses, None):
            try:
                rejected = min(await self._post(body), spans)
            except _NotTaken as failed:
                if pause is not None and failed.again and not self._leaving.is_set():
                    await set_within(self._leaving, pause * (0.5 + self._rng.random()))
                    continue
                self._counts.spans["failed"] += spans
                self._failures.count(str(failed))
                return
            self._counts.spans["rejected"] += rejected
            self._counts.spans["sent"] += spans - rejected
            return

    def _made(self, batch: list[Ended]) -> tuple[int, bytes]:
        """How many spans, and the body. The clock is compared with that of the day once for all."""
        epoch = time_ns() - int(self._clock() * 1e9)
        return export_body(batch, epoch, self.resource, self._scope)

    async def _post(self, body: bytes) -> int:
        """How many spans of it the collector rejected. Raises _NotTaken."""
        if self._session is None:
            self._session = aiohttp.ClientSession(
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                timeout=aiohttp.ClientTimeout(total=_WITHIN),
            )
        headers = {"Content-Type": "application/json", "User-Agent": "/".join(self._scope), **self.headers}
        try:
            async with self._session.post(self.url, data=body, headers=headers, allow_redirects=False) as reply:
                if 200 <= reply.status < 300:
                    return _rejected(await _start_of(reply.content))
                raise _NotTaken(f"the collector answered {reply.status}", reply.status in _TRY_AGAIN)
        except TimeoutError:
            raise _NotTaken(f"no answer within {_WITHIN:g} s", True) from None
        except aiohttp.ClientResponseError:  # its text has some of what was answered
            raise _NotTaken("its answer is not HTTP", False) from None
        except (
            aiohttp.ClientError,
            OSError,
            ValueError,
        ) as error:  # ValueError: of a URL that nothing can be sent to
            raise _NotTaken(str(error) or type(error).__name__, True) from None


async def _start_of(content: aiohttp.StreamReader) -> bytes:
    """Of an answer's body, as much as is read."""
    read = b""
    with suppress(aiohttp.ClientError, OSError, TimeoutError):  # it was taken, as the status has said
        while len(read) < _MOST_READ and (piece := await content.read(_MOST_READ - len(read))):
            read += piece
    return read


def _rejected(body: bytes) -> int:
    """`rejectedSpans` of an ExportTraceServiceResponse; 0 where there is none, or it is none."""
    try:
        found = orjson.loads(body)["partialSuccess"]["rejectedSpans"]
        return max(0, int(found))
    except (ValueError, KeyError, TypeError):  # many answer with nothing, or in protobuf
        return 0


def _report(count: int, why: str) -> None:
    _log.warning("spans_not_delivered", posts=count, error=why)
