"""One tree: every refusal slb answers with, and every failure it reports, by name."""

import os
import socket
import ssl
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Reason:
    """Why slb answers a request itself: the code a user looks up, its HTTP status, seconds for Retry-After.

    `public` is what a stranger is told in the place of a detail that names upstreams, routes or pools; where it is
    empty the detail speaks of the request alone.
    """

    name: str
    status: int
    retry_after: int | None = None
    public: str = ""


BAD_REQUEST = Reason("bad_request", 400)
"""Malformed HTTP, or a body that is not what the API takes; the detail names the field."""
UNAUTHORIZED = Reason("unauthorized", 401)
"""A token is asked for, and the request's is missing or not known; or what was sent to `/tasks/handle` is not from
Cloud Tasks."""
FORBIDDEN = Reason("forbidden", 403)
"""The token lacks a right, which the detail names (docs/operations.md#tokens-and-rights); or no token is set, and
the caller is not a program of this machine, or it asks the data listener; or a web page asks there."""
NO_ROUTE = Reason("no_route", 404)
"""No route takes this path."""
UNKNOWN_MODEL = Reason("unknown_model", 404)
"""The quota router, or the job dispatcher, has no model of this name."""
UNKNOWN_JOB = Reason("unknown_job", 404)
"""No job has this id; or it ended, and its model's `result_ttl` is over."""
UNKNOWN_TASK = Reason("unknown_task", 404)
"""The quota router never admitted this task, or it ended over an hour ago."""
UNKNOWN_REQUEST = Reason("unknown_request", 404)
"""No instance remembers a request of this id: it is too long ago, or it came to none that lives."""
METHOD_NOT_ALLOWED = Reason("method_not_allowed", 405)
"""CONNECT, or a method the API's endpoint does not have."""
REQUEST_TIMEOUT = Reason("request_timeout", 408)
"""The head, or a body for the API, took longer than `head_timeout`."""
NO_MODELS = Reason("no_models", 409)
"""The quota router has no model yet."""
IDEMPOTENCY_MISMATCH = Reason("idempotency_mismatch", 409)
"""The key stands for a request with another estimate or other models."""
TOO_MANY_MODELS = Reason("too_many_models", 409)
"""The quota router, or the job dispatcher, has as many models as it may have."""
STALE_ATTEMPT = Reason("stale_attempt", 409)
"""A GPU has reported of an attempt that is not its job's latest, or that has ended: it changes nothing."""
JOB_ENDED = Reason("job_ended", 409)
"""What was asked for cannot be done to a job that has ended."""
AMBIGUOUS_JOB = Reason("ambiguous_job", 409)
"""Jobs of several models have this id, and the request names no model."""
NOT_COUNTED = Reason("not_counted", 409)
"""An autoscaler asks for a route whose requests need no slots: the fleet does not count them
(docs/scaling.md#what-it-answers)."""
BODY_TOO_LARGE = Reason("body_too_large", 413)
"""The body is longer than `max_body`; for the API, than 1 MiB, with a job 4 MiB, with many jobs 16 MiB."""
PAYLOAD_TOO_LARGE = Reason("payload_too_large", 413)
"""A job's payload is longer than its model's `payload_limit`."""
URI_TOO_LONG = Reason("uri_too_long", 414)
"""The request line is longer than `max_request_line`."""
ESTIMATE_EXCEEDS_LIMIT = Reason("estimate_exceeds_limit", 422)
"""The estimate is more tokens than any model that would do ever has at once."""
IDEMPOTENCY_REUSED = Reason("idempotency_reused", 422)
"""The job id, or the idempotency key, stands for another job of this model."""
NO_SLOT_YET = Reason("no_slot_yet", 429, retry_after=1)
"""To Cloud Tasks: no slot was free for the job; the task is sent again (docs/jobs.md#cloud-tasks)."""
HEADERS_TOO_LARGE = Reason("headers_too_large", 431)
"""The head has more than `max_head` bytes or `max_headers` fields."""
INTERNAL = Reason("internal", 500, public="slb failed; its log tells more under this request id")
"""A bug in slb; the log has the traceback."""
SCRIPT_FAILED = Reason("script_failed", 500)
"""Redis answers, but the quota router's script failed in it; the log has what Redis says."""
UPSTREAM_CONNECT = Reason("upstream_connect", 502, public="no upstream could be reached")
"""No connection to an upstream could be made."""
UPSTREAM_RESET = Reason("upstream_reset", 502, public="the upstream ended the connection before it had answered")
"""The upstream ended the connection before it had answered."""
UPSTREAM_UNREACHED = Reason("upstream_unreached", 502, public="the network to the upstream does not carry")
"""The upstream's machine has confirmed nothing for 5 s: the network between this instance and it is cut."""
UPSTREAM_PROTOCOL = Reason("upstream_protocol", 502, public="the upstream's answer could not be read")
"""The upstream's answer was not HTTP/1.1."""
REPLY_TOO_LARGE = Reason("reply_too_large", 502, public="the upstream's answer is too long")
"""The upstream's answer to a request of slb's own is longer than slb takes; no client gets this one."""
ERROR_FRAME = Reason("error_frame", 502)
"""Never sent: how a stream of events is logged and counted in which the upstream has told of an error of its
own, as inference engines do once their answer has begun."""
NOT_READY = Reason("not_ready", 503, retry_after=1)
"""The first table is not loaded yet."""
NO_UPSTREAM = Reason("no_upstream", 503, retry_after=1, public="no upstream takes requests now")
"""The route has no upstream that takes requests."""
POOL_SATURATED = Reason("pool_saturated", 503, retry_after=1, public="all upstreams are busy")
"""All upstreams of the route have as many requests in flight as they may, and `when_full` is `shed`
(docs/global-view.md#what-a-client-sees)."""
QUEUE_FULL = Reason("queue_full", 503, retry_after=1, public="all upstreams are busy, and too many requests wait")
"""All of them are busy, and `queue_limit` requests wait already."""
QUEUE_TIMEOUT = Reason("queue_timeout", 503, retry_after=1, public="no upstream became free in time")
"""None of them became free within `queue_timeout`."""
SLOTS_UNKNOWN = Reason(
    "slots_unknown", 503, retry_after=1, public="slb cannot tell now whether an upstream is free"
)
"""Redis did not say in time which of them are free, and the route is not to guess (`when_unsure`)."""
OVERLOADED = Reason("overloaded", 503, retry_after=1, public="slb is at a limit for now")
"""slb itself is at a limit: connections, descriptors (docs/operations.md#descriptors), streams of events, or the
bodies of the API, of which it holds 32 MiB at once."""
DRAINING = Reason("draining", 503, retry_after=1)
"""This instance is about to stop."""
REDIS_DOWN = Reason("redis_down", 503, retry_after=1)
"""A change was asked for, and Redis does not answer."""
NOT_REPLICATED = Reason("not_replicated", 503, retry_after=1)
"""The job is in Redis, and no replica has answered in time that it has it (docs/jobs.md#replicas)."""
JOB_UNENDED = Reason("job_unended", 503, retry_after=1)
"""To Cloud Tasks: the job has not ended within the task's deadline; it goes on, and the task is sent again."""
TASK_KEYS_UNKNOWN = Reason("task_keys_unknown", 503, retry_after=1)
"""To Cloud Tasks: the keys of its OIDC tokens could not be read (`jobs_tasks_keys`); the task is sent again."""
UPSTREAM_TIMEOUT = Reason("upstream_timeout", 504, public="no answer came in time")
"""No byte of the answer came within `first_byte_timeout`, or another deadline of the route has passed."""
HTTP_VERSION = Reason("http_version", 505)
"""The request is neither HTTP/1.1 nor HTTP/1.0."""
LOOP = Reason("loop", 508)
"""The request has passed this instance before."""

CLIENT_GONE = Reason("client_gone", 499)
"""Never sent: how a request whose client left is logged and counted."""
CLIENT_GAVE_UP = Reason("client_gave_up", 499)
"""Never sent: the same, of a client that left without a first byte after 10 s or more, and after ten times as
long as answers usually take at most, or in a silence of 30 s or more; or after 1 s, where the upstream was known to
be stuck. It counts as a failure of the upstream."""

BROKEN = frozenset(
    each.name
    for each in (
        UPSTREAM_RESET,
        UPSTREAM_UNREACHED,
        UPSTREAM_PROTOCOL,
        UPSTREAM_TIMEOUT,
        ERROR_FRAME,
        CLIENT_GAVE_UP,
    )
)
"""Reasons that make a request a failure whatever its status: the answer broke off or never began, through the
upstream."""


def is_error(status: int, reason: str) -> bool:
    """Whether a request that ended so has failed."""
    return status >= 500 or is_broken(status, reason)


def is_broken(status: int, reason: str) -> bool:
    """Whether it has failed through the upstream, by another status than that of an error. A refusal (4xx) that
    breaks off has told its client what it was to tell."""
    return reason in BROKEN and (status < 400 or status == CLIENT_GAVE_UP.status)


NO_ROUTE_HERE = "no route takes this path"
"""The detail of NO_ROUTE from a listener for traffic; the API names what is not there."""


class SlbError(Exception):
    """Anything slb reports by name rather than by traceback."""


class Refused(SlbError):
    """A request slb answers itself: `reason` is the name, `detail` one sentence for a person."""

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(f"{reason.name}: {detail}")
        self.reason = reason
        self.detail = detail


class InvalidName(SlbError, ValueError):
    """A path, member or duration that has no normal form. The message says what is wrong with it."""


class ConfigError(SlbError):
    """Settings that cannot be used: one line, naming the setting and the value."""


class RedisRefused(SlbError):
    """Redis answered, and said no (auth, a wrong database, not a Redis): starting again cannot help."""


class RedisUnavailable(SlbError):
    """Redis did not answer. It is retried; traffic goes on. `reached`: something may have been written."""

    def __init__(self, message: str, reached: bool = True) -> None:
        super().__init__(message)
        self.reached = reached


class NotReplicated(RedisUnavailable):
    """What was written is in Redis, and on no replica yet, as far as is known."""


class TasksFailed(SlbError):
    """The API of Cloud Tasks did not do what it was asked for: `status` is what it answered, 0 where nothing."""

    def __init__(self, status: int, error: str) -> None:
        super().__init__(f"status {status}: {error}" if status else error)
        self.status = status


class ScriptFailed(SlbError):
    """Redis answers, and a script of slb's failed in it: a bug, or somebody else's value under one of its keys."""


def tls_fault(error: Exception) -> str:
    """What of TLS failed, for a person, without the library's own coordinates; empty where it was something else.
    Such errors have numbers of their own, which are none of the system's."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"certificate verify failed: {error.verify_message}"
    if isinstance(error, ssl.SSLError) and error.reason:
        return f"TLS: {error.reason.lower().replace('_', ' ')}"
    return ""


def no_answer(error: Exception) -> str:
    """Why an API gave none, in the system's words where it has some. Libraries wrap what the system said."""
    error = getattr(error, "certificate_error", None) or getattr(error, "os_error", None) or error
    if isinstance(error, ssl.SSLError) and error.reason == "WRONG_VERSION_NUMBER":
        return "the API there speaks no TLS"
    if isinstance(error, OSError) and not isinstance(error, ssl.SSLError | socket.gaierror) and error.errno:
        return os.strerror(error.errno)
    return tls_fault(error) or getattr(error, "strerror", None) or str(error) or type(error).__name__
