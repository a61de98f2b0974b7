"""The gRPC server that Envoy asks: one stream for each request.

grpc.aio is used as it costs the least: bytes in and bytes out, parsed and made here, and no more messages than the
protocol needs."""

import asyncio
import time
from contextlib import suppress
from random import Random
from typing import Any

import grpc
import structlog
from google.protobuf.message import DecodeError
from grpc import aio
from grpc_health.v1 import health_pb2_grpc
from grpc_health.v1.health import aio as health_aio

from slb.admission.gates import Gates
from slb.admission.snapshots import Snapshots
from slb.config import Settings
from slb.extproc.broken import Broken
from slb.extproc.context import ExtProcContext
from slb.extproc.exchange import Exchange, NotReady, OutOfOrder
from slb.extproc.failures import Failures
from slb.extproc.health import LIVENESS, NOT_SERVING, OF_READINESS, SERVING
from slb.extproc.routes import Routes
from slb.extproc.words import LOG_METHOD, LOG_SERVICE, METHOD, SERVICE
from slb.listening import AddressInUse
from slb.names import join_member
from slb.observe.log import AccessLog
from slb.observe.metrics import Metrics
from slb.routing.mirror import Mirror
from slb.setting_values import host_port

_log = structlog.get_logger("slb.extproc")

_OPTIONS = (
    ("grpc.so_reuseport", 0),  # two processes on one port would share it in silence
    ("grpc.http2.bdp_probe", 0),  # messages are small: a window that is measured is worth nothing, and costs pings
    ("grpc.max_concurrent_streams", 1_000_000),  # each request that Envoy has in flight is one
    # An Envoy whose machine is gone says nothing: its slots are free after 15 s at most.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
)
_Rpc = aio.ServicerContext[bytes, bytes]


class Writer:
    """Writes to one stream, one message at a time: gRPC takes no second one before that."""

    __slots__ = ("_is_writing", "_rpc", "_task", "_waiting")

    def __init__(self, rpc: _Rpc) -> None:
        self._rpc = rpc
        self._waiting: list[bytes] = []
        self._is_writing = False
        self._task: asyncio.Task[None] | None = None

    async def write(self, message: bytes) -> None:
        """It is written on return, unless others are before it: then it is later."""
        if self._is_writing:
            self._waiting.append(message)
            return
        self._is_writing = True
        try:
            await self._rpc.write(message)
        finally:
            self._is_writing = False
        if self._waiting:
            self._begin()

    def write_later(self, message: bytes) -> None:
        self._waiting.append(message)
        if not self._is_writing:
            self._begin()

    def _begin(self) -> None:
        self._is_writing = True
        self._task = asyncio.get_running_loop().create_task(self._write_all())

    async def _write_all(self) -> None:
        with suppress(aio.BaseError):  # the stream has ended meanwhile, and with it what it held
            while self._waiting:
                await self._rpc.write(self._waiting.pop(0))
        self._is_writing = False

    async def written(self) -> None:
        """Wait until all is written."""
        if self._task is not None:
            await self._task


class ExtProcServer:
    """`context`: what requests share; `streams`: how many are open."""

    def __init__(
        self,
        settings: Settings,
        mirror: Mirror,
        metrics: Metrics,
        access_log: AccessLog,
        gates: Gates,
        rng: Random,
    ) -> None:
        self._mirror = mirror
        self._address = settings.extproc_listen
        self._most, self._silence = settings.max_connections, settings.head_timeout
        self.context = ExtProcContext(
            mirror=mirror,
            metrics=metrics,
            access_log=access_log,
            gates=gates,
            routes=Routes(mirror),
            failures=Failures(time.monotonic),
            clock=time.monotonic,
            rng=rng,
            tells_all=settings.client_detail == "full",
            snapshots=Snapshots(gates, metrics),
        )
        self.streams = 0
        self._broken = Broken(self.context)
        self._logs: set[asyncio.Task[None]] = set()
        self._draining = False
        self._is_cutting = False
        self._changed = asyncio.Event()
        self._health = health_aio.HealthServicer()
        self._server: aio.Server | None = None
        metrics.extproc.streams = lambda: self.streams
        mirror.on_swap(lambda _: self._changed.set())

    async def start(self) -> str:
        """Listen; where. Raises AddressInUse."""
        self._server = server = aio.server(options=_OPTIONS)
        process: grpc.RpcMethodHandler[Any, Any] = grpc.stream_stream_rpc_method_handler(self._process)
        log: grpc.RpcMethodHandler[Any, Any] = grpc.stream_unary_rpc_method_handler(self._follow_log)
        for service, methods in ((SERVICE, {METHOD: process}), (LOG_SERVICE, {LOG_METHOD: log})):
            server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, methods),))
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        host, port = host_port(self._address)
        try:
            bound = server.add_insecure_port(f"[{host}]:{port}" if ":" in host else f"{host}:{port}")
        except RuntimeError:
            raise AddressInUse(f"{self._address} cannot be listened on (setting extproc_listen)") from None
        await self._health.set(LIVENESS, SERVING)
        await self._tell_readiness()
        await server.start()
        return join_member("http", host, bound)

    async def follow_readiness(self) -> None:
        """Tell who asks for the health of this process, until cancelled."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            await self._tell_readiness()

    async def _tell_readiness(self) -> None:
        is_ready = self._mirror.ready and not self._draining
        for name in OF_READINESS:
            await self._health.set(name, SERVING if is_ready else NOT_SERVING)

    def reconfigure(self, settings: Settings) -> None:
        self._most, self._silence = settings.max_connections, settings.head_timeout
        self.context.tells_all = settings.client_detail == "full"

    def begin_drain(self) -> None:
        """Say that this process is not ready; it still answers whoever asks."""
        self._draining = True
        self._changed.set()

    async def drain(self, timeout: float) -> int:
        """Take no new stream, and let the open ones end, for at most `timeout` seconds. Returns how many were cut
        off."""
        self.begin_drain()
        if self._server is None:
            return 0
        until = asyncio.get_running_loop().time() + timeout
        stopping = asyncio.create_task(self._server.stop(timeout))
        while self.streams and asyncio.get_running_loop().time() < until - 0.05:
            await asyncio.sleep(0.02)
        cut, self._is_cutting = self.streams, True
        for each in self._logs:  # they never end by themselves
            each.cancel()
        await stopping
        return cut

    # -- Envoy's access log

    async def _follow_log(self, _: object, rpc: _Rpc) -> bytes:
        """One stream for each thread of an Envoy. What is told there of replies that broke off counts."""
        reading = asyncio.create_task(self._hear(rpc))
        self._logs.add(reading)
        try:
            if not self._is_cutting:
                await asyncio.wait([reading])
            if reading.done() and not reading.cancelled():  # else it drains: gRPC ends none by its task's end
                reading.result()
        except DecodeError as error:
            await rpc.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        finally:
            self._logs.discard(reading)
            reading.cancel()
        return b""

    async def _hear(self, rpc: _Rpc) -> None:
        while isinstance(message := await rpc.read(), bytes):
            self._broken.hear(message)

    # -- one stream

    async def _process(self, _: object, rpc: _Rpc) -> None:
        if 0 < self._most <= self.streams:
            await self._turn_away(rpc, "full", "too many requests are in flight")
        writer = Writer(rpc)
        exchange = Exchange(self.context, writer.write_later)
        self.streams += 1
        try:
            message = await self._first(rpc)
            while isinstance(message, bytes):  # else it is EOF
                if answer := exchange.take(message):
                    await writer.write(answer)
                if exchange.out.is_full:
                    await exchange.out.emptied()
                message = await rpc.read()
        except NotReady as error:
            await rpc.abort(grpc.StatusCode.UNAVAILABLE, str(error))
        except (DecodeError, OutOfOrder) as error:
            await rpc.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        except TimeoutError:
            await self._turn_away(rpc, "silent", "nothing was asked")
        except aio.BaseError:  # the stream has ended while it was written to
            pass
        except Exception:  # noqa: BLE001 -- a fault of slb's own: Envoy goes on without it
            _log.exception("extproc_broke", request_id=exchange.request_id)
            await rpc.abort(grpc.StatusCode.INTERNAL, "slb failed")
        finally:
            self.streams -= 1
            exchange.end(self._is_cutting)

    async def _first(self, rpc: _Rpc) -> object:
        """What a stream begins with. Envoy sends it with the stream: one that says nothing is not Envoy's, and ends
        with TimeoutError."""
        async with asyncio.timeout(self._silence):
            return await rpc.read()

    async def _turn_away(self, rpc: _Rpc, why: str, detail: str) -> None:
        """Raises what ends the stream."""
        self.context.metrics.extproc.turned_away[why] += 1
        await rpc.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, detail)
