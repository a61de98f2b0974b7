"""What the settings make of Cloud Tasks."""

import sys

import pytest

from slb.config import Settings
from slb.errors import ConfigError, Refused
from slb.jobs.cloud_tasks import SECRET_HEADER
from slb.jobs.google_auth import OidcTokens
from slb.jobs.task_parts import tasks_of

QUEUES = {
    "jobs_tasks_queues": "projects/acme/locations/europe-west1/queues/gpu",
    "jobs_tasks_url": "https://slb.example",
}
EMULATOR = {"jobs_tasks_api": "http://127.0.0.1:9"}


def settings(**more: str) -> Settings:
    return Settings.model_validate({**QUEUES, **more})


async def test_without_queues_no_push_is_taken() -> None:
    parts = tasks_of(Settings())
    assert parts.api is None
    with pytest.raises(Refused, match="jobs_tasks_queues is not set here"):
        await parts.check({SECRET_HEADER: ""})


async def test_a_secret_is_what_pushes_are_known_by() -> None:
    parts = tasks_of(settings(jobs_tasks_secret="known"))
    await parts.check({SECRET_HEADER: "known"})
    for other in ("", "Known", "known2", "kn\udc80wn"):
        with pytest.raises(Refused, match="unauthorized"):
            await parts.check({SECRET_HEADER: other})


def test_an_account_is_what_pushes_are_known_by() -> None:
    assert isinstance(tasks_of(settings(jobs_tasks_account="slb@acme.example")).check, OidcTokens)


@pytest.mark.parametrize("more", [{"jobs_tasks_secret": "known"}, {**EMULATOR, "jobs_tasks_account": "a@b"}])
def test_without_googles_library_slb_says_what_to_install(
    more: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "slb.jobs.google_auth", None)
    with pytest.raises(ConfigError, match=r"slb\[cloud-tasks\]"):
        tasks_of(settings(**more))
    assert tasks_of(settings(**EMULATOR, jobs_tasks_secret="known")).api is not None
