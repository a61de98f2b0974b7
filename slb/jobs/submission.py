"""A job as it is kept, made from what its caller submitted. Pure but for the id of a job that came without one."""

import hashlib
from uuid import uuid4

import orjson

from slb.errors import BAD_REQUEST, PAYLOAD_TOO_LARGE, Refused
from slb.job import MOST_KEPT, MOST_PAYLOAD, JobRequest, Submission

_SAME = 24
"""Characters of a digest that tell one job from another, as `lua/jobs_state.lua` has it."""


def submission_of(
    request: JobRequest, priority: str, is_buffered: bool = False, limit: int = MOST_PAYLOAD
) -> Submission:
    """`priority`: its class; `is_buffered`: it waits for its task first; `limit`: bytes that the payload may have.
    The digest is that of all that was submitted, the id left out. Raises Refused where it cannot be written as
    JSON, or is too large."""
    try:
        payload = orjson.dumps(request.payload)
    except orjson.JSONEncodeError as error:
        raise Refused(BAD_REQUEST, f"payload: {error}") from None
    if len(payload) > limit:
        raise Refused(PAYLOAD_TOO_LARGE, f"payload: {len(payload)} bytes, and {limit} may be")
    besides = {
        "callback_url": request.callback_url,
        "metadata": request.metadata,
        "max_retries": request.max_retries,
    }
    given = {name: value for name, value in besides.items() if value not in (None, "")}
    whole = [request.model, request.priority, request.deadline, {"payload": request.payload, **given}]
    try:
        written = orjson.dumps({"payload": orjson.Fragment(payload), **given})
        in_order = orjson.dumps(whole, option=orjson.OPT_SORT_KEYS)
    except orjson.JSONEncodeError as error:  # nested too deep, or with a number that JSON does not keep
        raise Refused(BAD_REQUEST, f"payload or metadata: {error}") from None
    if len(written) > MOST_KEPT:
        raise Refused(PAYLOAD_TOO_LARGE, f"payload and metadata: {len(written)} bytes, {MOST_KEPT} may be")
    digest = hashlib.blake2b(in_order, digest_size=16)
    return Submission(
        model=request.model,
        id=request.id or uuid4().hex,
        priority=priority,
        digest=digest.hexdigest()[:_SAME] + (request.owner or digest.hexdigest()[_SAME:]),
        written=written,
        deadline=max(1, round(request.deadline * 1000)) if request.deadline else 0,
        calls_back=bool(request.callback_url),
        is_buffered=is_buffered,
    )
