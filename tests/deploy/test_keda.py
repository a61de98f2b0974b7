"""deploy/keda: each trigger reads a figure that /scale answers, with a token that there is."""

from typing import Any
from urllib.parse import urlsplit

import pytest

from slb.api.shapes import ScaleShown
from slb.names import normal_path
from tests.deploy.manifests import FOLDER, ROOT, of_kind, read

FILES = sorted((ROOT / "deploy" / "keda").glob("*.yaml"))
OBJECTS = {name: each for file in FILES for name, each in of_kind("ScaledObject", read(file)).items()}
_KNOWN = {"url", "valueLocation", "targetValue", "activationTargetValue", "authMode", "format"}
"""Of the trigger metrics-api, as KEDA documents it."""


def triggers(name: str) -> list[Any]:
    found: list[Any] = OBJECTS[name]["spec"]["triggers"]
    return found


@pytest.mark.parametrize("name", OBJECTS)
def test_each_trigger_reads_a_figure_that_is_answered(name: str) -> None:
    for trigger in triggers(name):
        metadata = trigger["metadata"]
        assert (trigger["type"], metadata["authMode"]) == ("metrics-api", "bearer")
        assert metadata.keys() <= _KNOWN
        assert ScaleShown.__annotations__[metadata["valueLocation"]] in (int, float)
        assert float(metadata["targetValue"]) > 0, "metadata of KEDA are texts"
        assert all(isinstance(value, str) for value in metadata.values())


@pytest.mark.parametrize("name", OBJECTS)
def test_each_asks_the_service_of_the_manifests_for_a_route(name: str) -> None:
    services = of_kind("Service", read(FOLDER / "services.yaml"))
    for trigger in triggers(name):
        url = urlsplit(trigger["metadata"]["url"])
        service, namespace = (url.hostname or "").split(".")[:2]
        assert (service, namespace) == ("slb-headless", "slb")
        assert url.port in [port["port"] for port in services[service]["spec"]["ports"] if port["name"] == "api"]
        path = url.path.removeprefix("/scale")
        assert normal_path(path) == path != url.path


def test_the_token_is_the_one_of_the_manifests() -> None:
    authentications = {
        name: each for file in FILES for name, each in of_kind("TriggerAuthentication", read(file)).items()
    }
    for name in OBJECTS:
        for trigger in triggers(name):
            [secret] = authentications[trigger["authenticationRef"]["name"]]["spec"]["secretTargetRef"]
            assert secret == {"parameter": "token", "name": "slb", "key": "api-token"}


def test_only_jobs_are_scaled_down_to_none() -> None:
    least = {name: each["spec"]["minReplicaCount"] for name, each in OBJECTS.items()}
    assert least == {"flux": 1, "flux-jobs": 0}
