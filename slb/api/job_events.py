"""GET /queue/events: what becomes of a job, or of all of a model, as server-sent events."""

import orjson
from aiohttp import hdrs, web

from slb.api.endpoints import Endpoint
from slb.api.job_bodies import JobAnswer
from slb.api.job_pages import shown
from slb.api.jobs import with_eta
from slb.api.owners import check_all_seen, check_seen, is_restricted
from slb.api.parts import ApiParts, Jobs, JobStream
from slb.api.replies import request_id_of, signed
from slb.errors import (
    AMBIGUOUS_JOB,
    BAD_REQUEST,
    DRAINING,
    OVERLOADED,
    REDIS_DOWN,
    SCRIPT_FAILED,
    UNKNOWN_JOB,
    UNKNOWN_MODEL,
    Refused,
)
from slb.job import ENDED, JobEvent

_SILENCE = 15.0
"""Seconds after which a comment goes where no event does: what is between must not take it for idle."""
_KEEP_ALIVE = b": \n\n"
_ONE_LINE = bytes.maketrans(b"\r\n", b"  ")
"""A GPU's result stands in JSON as it came, and a line end in it would end the event. Within JSON's texts line ends
are escaped: those that stand there raw are between its parts, where a blank means the same."""
_HEAD = {hdrs.CONTENT_TYPE: "text/event-stream", hdrs.CACHE_CONTROL: "no-store", "X-Accel-Buffering": "no"}


class JobEventsEndpoint:
    """Decides nothing: see slb/jobs/events.py."""

    def __init__(self, parts: ApiParts, jobs: Jobs) -> None:
        self._parts = parts
        self._jobs = jobs

    def endpoints(self) -> list[Endpoint]:
        unknown = (UNKNOWN_JOB, UNKNOWN_MODEL, AMBIGUOUS_JOB)
        reasons = (BAD_REQUEST, *unknown, SCRIPT_FAILED, REDIS_DOWN, OVERLOADED, DRAINING)
        return [
            Endpoint(
                "GET",
                "/queue/events",
                self.stream,
                None,
                None,
                reasons,
                ("jobs",),
                content_type="text/event-stream",
                query=("job_id", "model"),
            )
        ]

    async def stream(self, request: web.Request) -> web.StreamResponse:
        """What becomes of one job (`job_id`), or of all jobs of a model (`model`), as server-sent events.

        Of one job the first event is its state now, and the last one its end; where several models have a job of
        that id, `model` names one. See docs/jobs.md#events.
        """
        id_, model = request.query.get("job_id", ""), request.query.get("model", "")
        if not id_ and not model:
            raise Refused(BAD_REQUEST, "job_id: has to be given, or model")
        if id_ and is_restricted(request, self._parts.settings):
            check_seen(request, self._parts.settings, await self._jobs.show(id_, model))
        elif not id_:
            check_all_seen(request, self._parts.settings)
        async with self._jobs.follow(model, id_) as stream:
            first = await stream.next(0.0) if id_ else None
            reply = web.StreamResponse(headers=_HEAD)
            if first is not None and first.id == request.headers.get("Last-Event-ID"):
                if first.name in ENDED:
                    return web.Response(status=204)  # so that a browser asks no more
                first = None
            opening = _KEEP_ALIVE
            if first is not None and first.job is not None:
                opening = _written(first, await with_eta(self._jobs, first.job))
            return await _streamed(request, reply, stream, opening)


async def _streamed(
    request: web.Request, reply: web.StreamResponse, stream: JobStream, opening: bytes
) -> web.StreamResponse:
    signed(reply, request_id_of(request.headers))
    await reply.prepare(request)
    if request.method == hdrs.METH_HEAD:
        return reply
    transport = request.transport
    if transport is not None:
        stream.on_drop = transport.abort
    try:
        await reply.write(opening)
        while (event := await stream.next(_SILENCE)) is not None or not stream.has_ended:
            await reply.write(_written(event) if event is not None else _KEEP_ALIVE)
        await reply.write_eof()
    except ConnectionError:
        pass  # the client has left, or was dropped
    except Exception:
        if transport is not None:
            transport.abort()  # half an event is none
        raise
    return reply


def _written(event: JobEvent, answer: JobAnswer | None = None) -> bytes:
    """`answer`: its data, where that has been made."""
    head = f"id: {event.id}\n" if event.id else ""
    data = answer or (shown(event.job) if event.job is not None else {"model": event.model})
    line = orjson.dumps(data).translate(_ONE_LINE)
    return f"{head}event: {event.name}\ndata: ".encode() + line + b"\n\n"
