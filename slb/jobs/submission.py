"""A job as it is kept, made from what its caller submitted. Pure but for the id of a job that came without one."""

import hashlib
from uuid import uuid4

import orjson

from slb.errors import BAD_REQUEST, Refused
from slb.job import JobRequest, Submission


def submission_of(request: JobRequest, priority: str, is_buffered: bool = False) -> Submission:
    """`priority`: its class; `is_buffered`: it waits for its task first. The digest is that of all that was
    submitted, the id left out. Raises Refused where it cannot be written as JSON."""
    besides = {
        "callback_url": request.callback_url,
        "metadata": request.metadata,
        "max_retries": request.max_retries,
    }
    given = {name: value for name, value in besides.items() if value not in (None, "")}
    kept = {"payload": request.payload, **given}
    whole = [request.model, request.priority, request.deadline, kept]
    try:
        written, in_order = orjson.dumps(kept), orjson.dumps(whole, option=orjson.OPT_SORT_KEYS)
    except orjson.JSONEncodeError as error:  # nested too deep, or with a number that JSON does not keep
        raise Refused(BAD_REQUEST, f"payload or metadata: {error}") from None
    digest = hashlib.blake2b(in_order, digest_size=16)
    return Submission(
        model=request.model,
        id=request.id or uuid4().hex,
        priority=priority,
        digest=digest.hexdigest(),
        written=written,
        deadline=max(1, round(request.deadline * 1000)) if request.deadline else 0,
        calls_back=bool(request.callback_url),
        is_buffered=is_buffered,
    )
