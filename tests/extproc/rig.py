"""An external processor on a real port, and a gRPC client that asks it as Envoy does."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

import grpc
import orjson
from envoy.service.ext_proc.v3.external_processor_pb2 import ProcessingRequest, ProcessingResponse
from grpc import aio
from grpc_health.v1 import health_pb2, health_pb2_grpc

from slb.admission.gates import Gates
from slb.control.connection import Connection
from slb.control.lane_timing import LaneTiming
from slb.control.ledger import Ledger
from slb.extproc.server import ExtProcServer
from slb.extproc.words import ATTEMPTS, CODE_DETAILS, DESTINATION, FILTER, NAMESPACE, SERVED, SERVICE
from slb.loading import load_settings
from slb.model import RouteRecord
from slb.observe.log import AccessLog
from slb.observe.metrics import Metrics
from slb.routing.mirror import Mirror
from slb.routing.rings import Rings
from tests.support.waiting import eventually, soon
from tests.support.witness import Recorder

NO_REDIS = "unix:///nowhere/redis.sock"
_PATIENCE = 10.0
"""Seconds that Redis may be silent: far more than by default, for the machine may be busy."""

Headers = Mapping[str, str]


class Stream:
    """One request of Envoy's. `host`: where the first answer sends it, empty where it is refused."""

    def __init__(self, call: Any) -> None:
        self._call = call

    async def show(self, request: ProcessingRequest) -> None:
        await soon(self._call.write(request))

    async def answer(self) -> ProcessingResponse:
        """The next one. Raises EndOfStream where there is none."""
        try:
            found = await soon(self._call.read())
        except aio.AioRpcError as error:
            raise EndOfStream(error.code()) from None
        if not isinstance(found, ProcessingResponse):
            raise EndOfStream(await self._call.code())
        return found

    async def hosts(self) -> list[str]:
        """Where the next answer sends it."""
        answer = await self.answer()
        while answer.HasField("override_message_timeout"):
            answer = await self.answer()
        return hosts_of(answer)

    async def replied(self, status: int = 200, served: str = "", details: str = "", attempts: int = 0) -> None:
        """Show the head of the reply, and take the answer to it."""
        request = ProcessingRequest()
        _add(request.response_headers, {":status": str(status)})
        if served:
            request.metadata_context.filter_metadata[NAMESPACE][SERVED] = served
        if details:
            request.attributes[FILTER][CODE_DETAILS] = details
        if attempts:
            request.attributes[FILTER][ATTEMPTS] = attempts
        await self.show(request)
        assert (await self.answer()).WhichOneof("response") == "response_headers"

    async def end(self) -> None:
        """As Envoy ends it, whether the reply has ended or the client has left."""
        await soon(self._call.done_writing())
        while await soon(self._call.read()) is not aio.EOF:
            pass

    def reset(self) -> None:
        self._call.cancel()


class EndOfStream(Exception):
    """The status is its argument."""


class Envoy:
    """One connection to an external processor."""

    def __init__(self, address: str) -> None:
        self._channel = aio.insecure_channel(address)
        self._process = self._channel.stream_stream(
            f"/{SERVICE}/Process", ProcessingRequest.SerializeToString, ProcessingResponse.FromString
        )

    def open(self) -> Stream:
        return Stream(self._process())

    async def ask(
        self, path: str = "/p", method: str = "GET", subset: Any = None, headers: Headers | None = None
    ) -> Stream:
        """Show a request's headers on a stream of its own."""
        stream = self.open()
        await stream.show(headers_of(path, method, subset, headers))
        return stream

    async def get(self, path: str = "/p", **asked: Any) -> list[str]:
        """The hosts for one request that is served at once."""
        stream = await self.ask(path, **asked)
        hosts = await stream.hosts()
        await stream.replied()
        await stream.end()
        return hosts

    async def refusal(self, path: str = "/p", **asked: Any) -> Any:
        """The immediate response to one request."""
        stream = await self.ask(path, **asked)
        answer = await stream.answer()
        await stream.end()
        assert answer.WhichOneof("response") == "immediate_response", answer
        return answer.immediate_response

    async def health(self, service: str) -> int:
        """As the gRPC health service has it."""
        stub = health_pb2_grpc.HealthStub(self._channel)
        answer = await soon(stub.Check(health_pb2.HealthCheckRequest(service=service)))
        return int(answer.status)

    async def close(self) -> None:
        """As its death does."""
        await self._channel.close()


def headers_of(
    path: str, method: str = "GET", subset: Any = None, headers: Headers | None = None
) -> ProcessingRequest:
    request = ProcessingRequest()
    pseudo = {":path": path, ":method": method, ":authority": "example.test", ":scheme": "http"}
    _add(request.request_headers, {**pseudo, "x-request-id": "an-id", **(headers or {})})
    if subset is not None:
        hint = request.metadata_context.filter_metadata["envoy.lb.subset_hint"]
        hint["x-gateway-destination-endpoint-subset"] = subset
    return request


def _add(into: Any, headers: Headers) -> None:
    for name, value in headers.items():
        into.headers.headers.add(key=name, raw_value=value.encode())


def set_headers(answer: ProcessingResponse) -> dict[str, str]:
    """What an answer to request headers sets; each replaces what is there."""
    options = answer.request_headers.response.header_mutation.set_headers
    assert all(each.append_action == each.OVERWRITE_IF_EXISTS_OR_ADD for each in options)
    return {each.header.key: each.header.raw_value.decode() for each in options}


def hosts_of(answer: ProcessingResponse) -> list[str]:
    """Where it sends the request: header and metadata say the same."""
    told = set_headers(answer)[DESTINATION]
    assert answer.dynamic_metadata[NAMESPACE][DESTINATION] == told
    return told.split(",")


class Picker:
    """An ExtProcServer with a mirror that the test fills. `redis`: the URL of the Redis that its slots are in;
    `name`: its id there. `witness`: what it was told."""

    def __init__(self, redis: str = NO_REDIS, name: str = "picker", **settings: Any) -> None:
        self.settings = load_settings({"access_log": "all", "extproc_listen": "127.0.0.1:0", **settings}, {})
        self._redis = redis
        self._name = name
        self._tasks: list[asyncio.Task[None]] = []
        self._envoys: list[Envoy] = []
        self.witness = Recorder()
        self.refusals: list[str] = []
        self.lines: list[dict[str, Any]] = []
        self.metrics = Metrics()

    async def start(self) -> "Picker":
        rng = Random(7)
        self.mirror = Mirror(self.settings.route_settings, rng, time.monotonic)
        self.log = AccessLog("all", rng, self._write)
        self._connection = Connection(self._redis, self.metrics)
        timing = LaneTiming(budget=_PATIENCE / 2, silence=_PATIENCE)
        self._ledger = Ledger(self._connection, self._name, self.metrics, rng, timing)
        gates = Gates(self._ledger, self.mirror, self.metrics, lambda: 1, rng)
        self.server = ExtProcServer(self.settings, self.mirror, self.metrics, self.log, gates, rng)
        self.server.context.witness = self.witness
        self.address = await self.server.start()
        self._tasks.append(asyncio.create_task(Rings(self.mirror, time.monotonic).run()))
        self._tasks.append(asyncio.create_task(self.server.follow_readiness()))
        if self._redis != NO_REDIS:
            self._tasks += [asyncio.create_task(self._ledger.run()), asyncio.create_task(gates.run())]
        return self

    def _write(self, data: bytes) -> None:
        self.lines.extend(orjson.loads(line) for line in data.splitlines())

    def route(self, path: str, *members: str, **settings: str) -> None:
        """Make `path` lead to these alone."""
        self.mirror.update({path: RouteRecord(frozenset(members), settings)}, {})

    def envoy(self) -> Envoy:
        """A new connection of an Envoy's."""
        self._envoys.append(Envoy(self.address))
        return self._envoys[-1]

    def logged(self) -> list[dict[str, Any]]:
        self.log.flush()
        return self.lines

    def inflight(self) -> dict[str, int]:
        """Upstreams with requests of this process."""
        return {each.member: each.inflight for each in self.mirror.upstreams.values() if each.inflight}

    async def at_rest(self) -> None:
        await eventually(lambda: not self.inflight() and not self.server.streams, what="a slot is held")

    async def stop(self) -> None:
        """Every stream ends; nothing may be held after that."""
        for envoy in self._envoys:
            await envoy.close()
        await self.server.drain(0.5)
        await self.at_rest()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._connection.aclose()


async def refused(stream: Stream) -> Any:
    """The immediate response that comes next."""
    answer = await stream.answer()
    assert answer.WhichOneof("response") == "immediate_response", answer
    return answer.immediate_response


def header(response: Any, name: str) -> str:
    """Of an immediate response."""
    found: Sequence[Any] = response.headers.set_headers
    return next((each.header.raw_value.decode() for each in found if each.header.key == name), "")


UNAVAILABLE, INVALID, INTERNAL = (
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.INTERNAL,
)
