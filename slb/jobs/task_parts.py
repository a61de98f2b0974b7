"""What the settings make of Cloud Tasks: its API, and what its pushes are known by."""

from typing import NamedTuple

from slb.config import Settings
from slb.errors import ConfigError
from slb.jobs.cloud_tasks import PUSH_PATH, CloudTasks, Target, TaskTiming
from slb.jobs.pushes import Check, by_secret, refuse_all


class TaskParts(NamedTuple):
    """`api` is None where there are no settings for it; `check` says whether Cloud Tasks has sent a push."""

    api: CloudTasks | None
    check: Check
    timing: TaskTiming = TaskTiming()


NO_TASKS = TaskParts(None, refuse_all)


def tasks_of(settings: Settings) -> TaskParts:
    """None of them where `jobs_tasks_queues` is not set. Raises ConfigError where google-auth is needed and is
    not there."""
    if not settings.jobs_tasks_queues:
        return NO_TASKS
    secret = settings.jobs_tasks_secret.get_secret_value() if settings.jobs_tasks_secret else ""
    target = Target(
        queues=settings.jobs_tasks_queues,
        api=settings.jobs_tasks_api,
        push_url=settings.jobs_tasks_url + PUSH_PATH,
        account=settings.jobs_tasks_account,
        secret=secret,
    )
    has_credentials = settings.jobs_tasks_api.startswith("https:")
    if not has_credentials and secret:
        return TaskParts(CloudTasks(target, None), by_secret(secret))
    try:
        from slb.jobs.google_auth import AccessTokens, OidcTokens
    except ImportError:
        raise ConfigError("jobs_tasks_queues: Google's credentials need slb[cloud-tasks] installed") from None
    check: Check = by_secret(secret)
    if target.account:
        check = OidcTokens(target.push_url, target.account, settings.jobs_tasks_keys)
    return TaskParts(CloudTasks(target, AccessTokens() if has_credentials else None), check)
