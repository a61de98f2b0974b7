"""A GPU that runs a job on its own is told that the job was cancelled, once: whether it listens is up to it."""

from urllib.parse import quote

import structlog

from slb.control.job_replies import Left
from slb.errors import Refused
from slb.job import ModelConfig
from slb.jobs.gpu_call import AnswerTooLarge, Caller, GpuRequest
from slb.routing.mirror import Mirror

_WITHIN = 5.0
"""Seconds it may take to answer."""
_MOST = 1 << 16
"""Bytes of its answer."""

_log = structlog.get_logger("slb.jobs")


async def cancel_there(left: Left, config: ModelConfig, mirror: Mirror, call: Caller) -> None:
    """Nothing where the model has no `cancel_endpoint_template`, or the GPU is not registered any more."""
    template, upstream = config.cancel_endpoint_template, mirror.upstream(left.member)
    if not template or not left.remote or upstream is None:
        return
    target = template.replace("{id}", quote(left.remote, safe=""))
    headers = {"X-Source": "dispatcher", "X-Job-Id": left.id}
    try:
        await call(GpuRequest(upstream, "POST", target, headers, b"", _WITHIN, _MOST))
    except (Refused, AnswerTooLarge) as error:
        _log.info("job_not_cancelled_there", job=left.id, upstream=left.member, error=str(error))
