"""deploy/kubernetes and the chart in deploy/helm/slb: they agree with each other and with slb. Where helm's engine is
installed (the package helm-python-sdk), the chart is rendered."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from slb.config import Settings
from slb.loading import load_settings
from tools import manifests

Manifests = dict[str, dict[str, Any]]
"""By kind, and by name behind a slash where there are several."""

PROBES = ("startupProbe", "readinessProbe", "livenessProbe")


def by_kind(texts: list[str]) -> Manifests:
    found: Manifests = {}
    for text in texts:
        for each in filter(None, yaml.safe_load_all(text)):
            kind, name = each["kind"], each["metadata"]["name"]
            found[kind if kind != "Service" else f"{kind}/{name}"] = each
    return found


@pytest.fixture
def plain() -> Manifests:
    return by_kind([file.read_text() for file in sorted(manifests.MANIFESTS.glob("*.yaml"))])


@pytest.fixture
def chart() -> Any:
    return pytest.importorskip("helm_python").Chart.load(manifests.CHART)


def rendered(chart: Any, **values: Any) -> Manifests:
    found = chart.render(values, name="slb", namespace="slb")
    return by_kind([text for text in found.values() if "kind:" in text])


def pod(found: Manifests) -> Any:
    return found["Deployment"]["spec"]["template"]["spec"]


def container(found: Manifests) -> Any:
    return pod(found)["containers"][0]


def settings(found: Manifests, folder: Path) -> Settings:
    """What an instance runs with, by the manifests alone."""
    file = folder / "slb.toml"
    file.write_text(found["ConfigMap"]["data"]["slb.toml"])
    secrets = {"redis-url": "redis://redis:6379/0", "api-token": "secret"}
    environ = {}
    for each in container(found)["env"]:
        source = each.get("valueFrom", {})
        secret = secrets.get(source.get("secretKeyRef", {}).get("key", ""))
        environ[each["name"]] = each.get("value") or secret or "slb-7d4b9"
    return load_settings({}, environ, file)


def test_there_is_one_of_each_kind(plain: Manifests) -> None:
    kinds = {"ServiceAccount", "Role", "RoleBinding", "ConfigMap", "Deployment", "PodDisruptionBudget"}
    assert plain.keys() == kinds | {"NetworkPolicy", "ServiceMonitor", "Service/slb", "Service/slb-instances"}


def test_an_instance_starts_with_these_settings(plain: Manifests, tmp_path: Path) -> None:
    read = settings(plain, tmp_path)
    assert read.roles == ("proxy", "discovery")
    assert read.api_token is not None
    assert read.discovery_kubernetes_routes == {"/models/flux": "service/flux:http"}
    assert read.defaults == {"policy": "least_inflight"}
    assert read.name == "slb-7d4b9"
    ports = {each["name"]: each["containerPort"] for each in container(plain)["ports"]}
    assert (read.listen, read.api) == (f":{ports['http']}", f":{ports['api']}")


def test_an_instance_that_ends_has_the_time_that_its_requests_have(plain: Manifests, tmp_path: Path) -> None:
    read = settings(plain, tmp_path)
    _, pause = container(plain)["lifecycle"]["preStop"]["exec"]["command"]
    assert read.drain_delay is not None
    needed = int(pause) + read.drain_delay + read.drain_timeout
    assert pod(plain)["terminationGracePeriodSeconds"] >= needed + 5
    ready = container(plain)["readinessProbe"]
    assert read.drain_delay >= ready["periodSeconds"] * ready["failureThreshold"]  # readiness is seen to end


def test_probes_ask_what_needs_no_token(plain: Manifests) -> None:
    asked = {probe: container(plain)[probe]["httpGet"] for probe in PROBES}
    assert {each["port"] for each in asked.values()} == {"http"}
    assert [asked[probe]["path"] for probe in PROBES] == ["/_slb/readyz", "/_slb/readyz", "/_slb/healthz"]


def test_an_instance_may_follow_slices_and_nothing_else(plain: Manifests) -> None:
    assert plain["Role"]["rules"] == [
        {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["get", "list", "watch"]}
    ]
    binding, account = plain["RoleBinding"], plain["ServiceAccount"]["metadata"]["name"]
    assert binding["roleRef"]["name"] == plain["Role"]["metadata"]["name"]
    assert [each["name"] for each in binding["subjects"]] == [account] == [pod(plain)["serviceAccountName"]]


def test_an_instance_is_confined(plain: Manifests) -> None:
    assert pod(plain)["securityContext"]["runAsNonRoot"] is True
    confined = container(plain)["securityContext"]
    assert confined["readOnlyRootFilesystem"] is True
    assert confined["allowPrivilegeEscalation"] is False
    assert confined["capabilities"] == {"drop": ["ALL"]}
    written = [mount["mountPath"] for mount in container(plain)["volumeMounts"] if not mount.get("readOnly")]
    environ = {each["name"]: each.get("value", "") for each in container(plain)["env"]}
    assert any(
        environ["SLB_DATA_DIR"].startswith(f"{path}/") for path in written
    )  # its own, in a volume of anyone's


def test_all_select_the_pods_of_the_deployment(plain: Manifests) -> None:
    labels = plain["Deployment"]["spec"]["template"]["metadata"]["labels"].items()
    selectors = [
        plain["Deployment"]["spec"]["selector"]["matchLabels"],
        plain["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"],
        plain["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"],
        *(plain[f"Service/{name}"]["spec"]["selector"] for name in ("slb", "slb-instances")),
    ]
    assert all(each.items() <= labels for each in selectors)
    instances = plain["Service/slb-instances"]
    assert instances["spec"]["clusterIP"] == "None"
    monitor = plain["ServiceMonitor"]["spec"]
    assert monitor["selector"]["matchLabels"].items() <= instances["metadata"]["labels"].items()
    assert not monitor["selector"]["matchLabels"].items() <= plain["Service/slb"]["metadata"]["labels"].items()
    (endpoint,) = monitor["endpoints"]
    assert endpoint["port"] in {each["name"] for each in instances["spec"]["ports"]}
    assert endpoint["path"] == "/metrics"


def test_traffic_comes_from_anywhere_and_calls_of_the_api_do_not(plain: Manifests) -> None:
    policy = plain["NetworkPolicy"]["spec"]
    assert policy["policyTypes"] == ["Ingress"]
    by_port = {rule["ports"][0]["port"]: rule.get("from") for rule in policy["ingress"]}
    assert by_port["http"] is None
    assert by_port["api"]


def test_the_values_and_their_schema_name_the_same() -> None:
    values = yaml.safe_load((manifests.CHART / "values.yaml").read_text())
    schema = json.loads((manifests.CHART / "values.schema.json").read_text())
    assert values.keys() == schema["properties"].keys() - {"global"}


def test_the_plain_manifests_are_the_chart_with_its_defaults(chart: Any) -> None:
    found = {file.name: file.read_text() for file in manifests.MANIFESTS.glob("*.yaml")}
    assert found == manifests.rendered(), "python tools/manifests.py writes them"


def test_without_services_to_follow_an_instance_has_no_right_and_no_token(chart: Any, tmp_path: Path) -> None:
    found = rendered(chart, kubernetes={"routes": {"/models/flux": None}})
    assert found.keys().isdisjoint({"Role", "RoleBinding"})
    assert pod(found)["automountServiceAccountToken"] is False
    assert settings(found, tmp_path).discovery_kubernetes_routes == {}


def test_annotations_take_the_right_to_watch_what_has_them(chart: Any, tmp_path: Path) -> None:
    found = rendered(chart, kubernetes={"annotations": True})
    assert [each["resources"] for each in found["Role"]["rules"]] == [["endpointslices"], ["pods", "services"]]
    assert all(each["verbs"] == ["get", "list", "watch"] for each in found["Role"]["rules"])
    assert settings(found, tmp_path).discovery_kubernetes_annotations


@pytest.mark.parametrize("drain", [{"timeout": 600}, {"preStop": 0, "delay": 30}])
def test_the_time_to_end_follows_the_drain(chart: Any, tmp_path: Path, drain: dict[str, int]) -> None:
    test_an_instance_that_ends_has_the_time_that_its_requests_have(rendered(chart, drain=drain), tmp_path)


@pytest.mark.parametrize(
    "values",
    [
        {"replicas": 0},
        {"replicaCount": 3},
        {"kubernetes": {"routes": {"models": "service/flux"}}},
        {"kubernetes": {"routes": {"/models": "flux:80"}}},
        {"drain": {"timeout": "60s"}},
    ],
)
def test_values_that_mean_nothing_are_refused(chart: Any, values: dict[str, Any]) -> None:
    with pytest.raises(Exception, match=r"^slb:\n- at '"):
        chart.validate_schema(values)
