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
UNAUTHORIZED = Reason("unauthorized", 401)
FORBIDDEN = Reason("forbidden", 403)
NO_ROUTE = Reason("no_route", 404)
UNKNOWN_MODEL = Reason("unknown_model", 404)
UNKNOWN_TASK = Reason("unknown_task", 404)
METHOD_NOT_ALLOWED = Reason("method_not_allowed", 405)
REQUEST_TIMEOUT = Reason("request_timeout", 408)
NO_MODELS = Reason("no_models", 409)
IDEMPOTENCY_MISMATCH = Reason("idempotency_mismatch", 409)
TOO_MANY_MODELS = Reason("too_many_models", 409)
BODY_TOO_LARGE = Reason("body_too_large", 413)
URI_TOO_LONG = Reason("uri_too_long", 414)
ESTIMATE_EXCEEDS_LIMIT = Reason("estimate_exceeds_limit", 422)
HEADERS_TOO_LARGE = Reason("headers_too_large", 431)
INTERNAL = Reason("internal", 500, public="slb failed; its log tells more under this request id")
SCRIPT_FAILED = Reason("script_failed", 500)
UPSTREAM_CONNECT = Reason("upstream_connect", 502, public="no upstream could be reached")
UPSTREAM_RESET = Reason("upstream_reset", 502, public="the upstream ended the connection before it had answered")
UPSTREAM_PROTOCOL = Reason("upstream_protocol", 502, public="the upstream's answer could not be read")
NOT_READY = Reason("not_ready", 503, retry_after=1)
NO_UPSTREAM = Reason("no_upstream", 503, retry_after=1, public="no upstream takes requests now")
POOL_SATURATED = Reason("pool_saturated", 503, retry_after=1, public="all upstreams are busy")
QUEUE_FULL = Reason("queue_full", 503, retry_after=1, public="all upstreams are busy, and too many requests wait")
QUEUE_TIMEOUT = Reason("queue_timeout", 503, retry_after=1, public="no upstream became free in time")
SLOTS_UNKNOWN = Reason(
    "slots_unknown", 503, retry_after=1, public="slb cannot tell now whether an upstream is free"
)
OVERLOADED = Reason("overloaded", 503, retry_after=1, public="slb is at a limit for now")
DRAINING = Reason("draining", 503, retry_after=1)
REDIS_DOWN = Reason("redis_down", 503, retry_after=1)
UPSTREAM_TIMEOUT = Reason("upstream_timeout", 504, public="no answer came in time")
HTTP_VERSION = Reason("http_version", 505)
LOOP = Reason("loop", 508)

CLIENT_GONE = Reason("client_gone", 499)
"""Never sent: how a request whose client left is logged and counted."""


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
