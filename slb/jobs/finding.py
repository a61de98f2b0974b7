"""Which model a job is of, where its caller has not said so: each model may have a job of the same id."""

import asyncio

from slb.control.jobs import JobLane
from slb.errors import AMBIGUOUS_JOB, Refused
from slb.jobs.models import Models


async def lane_of(models: Models, id_: str, model: str = "") -> JobLane | None:
    """That of `model`; without one, that of the model which has the job, None where none has. Raises Refused where
    several have one of this id, and what `Models.lanes` raises."""
    if model:
        return await models.lane(model)
    lanes = [each async for each in models.lanes("")]
    jobs = await asyncio.gather(*(each.show(id_, 0) for each in lanes))
    found = [lane for lane, job in zip(lanes, jobs, strict=True) if job is not None]
    if len(found) > 1:
        names = ", ".join(sorted(each.model for each in found))
        raise Refused(AMBIGUOUS_JOB, f"{id_!r} is a job of each of {names}: name its model")
    return found[0] if found else None
