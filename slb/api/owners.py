"""Whose jobs a caller may see."""

from collections.abc import Callable

from aiohttp import web

from slb.api.callers import HOLDER
from slb.config import Settings
from slb.errors import FORBIDDEN, UNKNOWN_JOB, Refused
from slb.job import JobShown, owner_of


def owner_in(request: web.Request) -> str:
    """What is kept with a job that this caller submits."""
    return owner_of(request[HOLDER].name)


def is_restricted(request: web.Request, settings: Settings) -> bool:
    """Whether a caller may see its own jobs alone."""
    return settings.jobs_visibility == "own" and not request[HOLDER].has_any(())


def may_see(request: web.Request, settings: Settings) -> Callable[[JobShown], bool]:
    """Which jobs a caller may see."""
    if not is_restricted(request, settings):
        return lambda job: True
    owner = owner_in(request)
    return lambda job: job.owner == owner


def check_seen(request: web.Request, settings: Settings, job: JobShown) -> None:
    """Raises Refused where a job is another's, as if there were none."""
    if not may_see(request, settings)(job):
        raise Refused(UNKNOWN_JOB, f"{job.id!r} is no job, or ended longer ago than its model's result_ttl")


def check_all_seen(request: web.Request, settings: Settings) -> None:
    """Raises Refused where a caller may not see all jobs of a model."""
    if is_restricted(request, settings):
        raise Refused(FORBIDDEN, "model: its jobs are others' too, and jobs_visibility is own: name a job_id")
