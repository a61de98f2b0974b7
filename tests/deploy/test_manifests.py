"""deploy/kubernetes as far as it can be judged without a cluster: it fits together, and it fits slb."""

import itertools
import re
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from slb.cli.entry import app
from slb.config import Settings
from slb.loading import load_settings
from tests.deploy.manifests import (
    FOLDER,
    REDIS,
    Document,
    container,
    of_kind,
    optional,
    pod,
    process_of,
    read,
    selectors,
    usual,
    variables,
)

EVERYTHING = usual() + optional()
DEPLOYMENTS = of_kind("Deployment", EVERYTHING)
SERVICES = of_kind("Service", EVERYTHING)
EXAMPLE = read(*sorted((FOLDER / "example").glob("*.yaml")))
PROBES = ("startupProbe", "readinessProbe", "livenessProbe")
WATCH = {"get", "list", "watch"}
_MARGIN = 5.0
"""Seconds that an instance may take besides, from the signal to its end."""


def settings_of(deployment: Document, directory: Path) -> Settings:
    """What its process would run with."""
    environ, file = process_of(deployment, directory)
    return load_settings({}, environ, file)


def sleeps(deployment: Document) -> float:
    """Seconds of its preStop."""
    hook = container(deployment).get("lifecycle", {}).get("preStop", {"exec": {"command": ["sleep", "0"]}})
    sleep, seconds = hook["exec"]["command"]
    assert sleep == "sleep"
    return float(seconds)


def ports(deployment: Document) -> dict[str, int]:
    return {each["name"]: each["containerPort"] for each in container(deployment)["ports"]}


def test_no_two_objects_have_the_same_name_and_none_has_a_namespace_of_its_own() -> None:
    names = [(each["kind"], each["metadata"]["name"]) for each in EVERYTHING]
    assert len(set(names)) == len(names)
    assert not any("namespace" in each["metadata"] for each in EVERYTHING)


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_the_settings_are_ones_slb_accepts_and_no_variable_sets_nothing(name: str, tmp_path: Path) -> None:
    settings = settings_of(DEPLOYMENTS[name], tmp_path)
    assert settings.redis_url.get_secret_value() == REDIS
    assert settings.api_token is not None
    assert settings.api == f":{ports(DEPLOYMENTS[name])['api']}"
    for variable in variables(DEPLOYMENTS[name]):
        assert variable.removeprefix("SLB_").removesuffix("_FILE").lower() in Settings.model_fields


def test_instances_listen_where_their_pods_and_services_say(tmp_path: Path) -> None:
    deployment = DEPLOYMENTS["slb"]
    assert settings_of(deployment, tmp_path).listen == f":{ports(deployment)['http']}"


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_slb_check_config_takes_the_settings(name: str, tmp_path: Path) -> None:
    environ, file = process_of(DEPLOYMENTS[name], tmp_path)
    said = CliRunner().invoke(app, ["check-config", *(["--config", str(file)] if file else [])], env=environ)
    assert said.exit_code == 0, said.output
    assert f"api = {settings_of(DEPLOYMENTS[name], tmp_path).api}" in said.output


@pytest.mark.parametrize("deployment", [*DEPLOYMENTS.values(), *of_kind("Deployment", EXAMPLE).values()])
def test_the_commands_are_ones_slb_takes(deployment: Document) -> None:
    if container(deployment)["image"] != "slb":
        return
    assert container(deployment)["command"] == ["slb"]
    command: Any = typer.main.get_command(app)
    arguments = list(container(deployment)["args"])
    while hasattr(command, "commands"):
        command = command.commands[arguments.pop(0)]
    with command.make_context("slb", arguments) as context:
        assert context.args == []


def test_the_grace_period_is_longer_than_pre_stop_and_both_drain_times(tmp_path: Path) -> None:
    for deployment in DEPLOYMENTS.values():
        settings = settings_of(deployment, tmp_path)
        longest = sleeps(deployment) + (settings.drain_delay or 0.0) + settings.drain_timeout
        assert pod(deployment)["terminationGracePeriodSeconds"] >= longest + _MARGIN


def test_an_instance_is_left_out_of_the_service_before_it_takes_no_connections(tmp_path: Path) -> None:
    """A probe that has just passed, and as many as it takes to fail."""
    deployment = DEPLOYMENTS["slb"]
    probe = container(deployment)["readinessProbe"]
    delay = settings_of(deployment, tmp_path).drain_delay
    assert delay is not None
    assert delay >= probe["periodSeconds"] * probe["failureThreshold"]
    assert sleeps(deployment) > 0


def test_a_new_instance_is_there_before_an_old_one_stops() -> None:
    assert DEPLOYMENTS["slb"]["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"] == 0
    assert DEPLOYMENTS["slb"]["spec"]["replicas"] > 1
    assert DEPLOYMENTS["slb-discovery"]["spec"]["replicas"] == 2


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_probes_ask_what_the_api_serves(name: str) -> None:
    asked = {probe: container(DEPLOYMENTS[name])[probe]["httpGet"] for probe in PROBES}
    assert {probe: get["path"] for probe, get in asked.items()} == dict(
        zip(PROBES, ("/healthz", "/readyz", "/healthz"), strict=True)
    )
    assert {get["port"] for get in asked.values()} == {"api"}
    assert "api" in ports(DEPLOYMENTS[name])


def test_every_selector_finds_the_pods_of_the_component_that_its_object_is_of() -> None:
    labels = {name: each["spec"]["template"]["metadata"]["labels"] for name, each in DEPLOYMENTS.items()}
    names = {"proxy": "slb", "discovery": "slb-discovery"}
    for document in EVERYTHING:
        for selector in selectors(document):
            found = [name for name, each in labels.items() if selector.items() <= each.items()]
            assert found == [names[document["metadata"]["labels"]["app.kubernetes.io/component"]]]


def test_ports_of_services_are_ports_of_their_pods() -> None:
    for name, service in SERVICES.items():
        deployment = DEPLOYMENTS["slb-discovery" if name == "slb-discovery" else "slb"]
        for port in service["spec"]["ports"]:
            assert port["targetPort"] in ports(deployment), name
            if service["spec"].get("clusterIP") == "None":  # nothing translates it
                assert port["port"] == ports(deployment)[port["targetPort"]]


def test_the_service_for_clients_has_no_port_of_the_api() -> None:
    assert [port["name"] for port in SERVICES["slb"]["spec"]["ports"]] == ["http"]


def test_discovery_may_only_read_endpoint_slices_and_instances_may_do_nothing() -> None:
    [role] = of_kind("Role", usual()).values()
    assert role["rules"] == [
        {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": sorted(WATCH)}
    ]
    [binding] = of_kind("RoleBinding", usual()).values()
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    assert [subject["name"] for subject in binding["subjects"]] == ["slb-discovery"]
    assert pod(DEPLOYMENTS["slb-discovery"])["serviceAccountName"] == "slb-discovery"
    assert pod(DEPLOYMENTS["slb"])["automountServiceAccountToken"] is False
    assert not any(each["kind"].startswith("ClusterRole") for each in EVERYTHING)


def test_annotations_have_a_role_of_their_own() -> None:
    [role] = of_kind("Role", optional()).values()
    [rule] = role["rules"]
    assert (rule["apiGroups"], set(rule["resources"]), set(rule["verbs"])) == ([""], {"pods", "services"}, WATCH)
    [binding] = of_kind("RoleBinding", optional()).values()
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    assert [subject["name"] for subject in binding["subjects"]] == ["slb-discovery"]


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_pods_fit_the_restricted_pod_security_standard(name: str) -> None:
    security = pod(DEPLOYMENTS[name])["securityContext"]
    assert security["runAsNonRoot"] is True
    assert security["runAsUser"] > 0
    assert security["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container(DEPLOYMENTS[name])["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_what_slb_writes_is_on_a_volume_that_may_be_written(name: str) -> None:
    """The table; and sockets of workers, in the directory for temporary files."""
    volumes = {each["name"]: each for each in pod(DEPLOYMENTS[name])["volumes"]}
    mounts = {each["mountPath"]: volumes[each["name"]] for each in container(DEPLOYMENTS[name])["volumeMounts"]}
    data = Path(variables(DEPLOYMENTS[name])["SLB_DATA_DIR"])
    assert "emptyDir" in mounts[str(data.parent)]
    assert "emptyDir" in mounts["/tmp"]
    assert len(mounts) == len(volumes)


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_secrets_come_in_files_and_nothing_secret_stands_in_the_manifests(name: str) -> None:
    said = variables(DEPLOYMENTS[name])
    files = {said["SLB_REDIS_URL_FILE"], said["SLB_API_TOKEN_FILE"]}
    assert files == {"/etc/slb/secret/redis-url", "/etc/slb/secret/api-token"}
    assert not of_kind("Secret", EVERYTHING)
    assert not {"SLB_REDIS_URL", "SLB_API_TOKEN"} & said.keys()


def test_every_file_that_is_mounted_is_there() -> None:
    maps = of_kind("ConfigMap", EVERYTHING)
    for deployment in DEPLOYMENTS.values():
        for volume in pod(deployment)["volumes"]:
            if "configMap" in volume:
                assert "slb.toml" in maps[volume["configMap"]["name"]]["data"]
            if "secret" in volume:
                assert volume["secret"]["secretName"] == "slb"


def test_no_service_sets_a_variable_of_slb() -> None:
    """Kubernetes would set SLB_DISCOVERY_PORT and the like, were service links not off."""
    assert all(pod(deployment)["enableServiceLinks"] is False for deployment in DEPLOYMENTS.values())


def test_network_policies_let_traffic_in_and_discovery_out() -> None:
    policies = of_kind("NetworkPolicy", EVERYTHING)
    traffic, api = policies["slb"]["spec"]["ingress"]
    assert [port["port"] for port in traffic["ports"]] == [ports(DEPLOYMENTS["slb"])["http"]]
    assert "from" not in traffic
    assert [port["port"] for port in api["ports"]] == [ports(DEPLOYMENTS["slb"])["api"]]
    assert api["from"]
    rules = policies["slb-discovery"]["spec"]["egress"]
    out = {(port["protocol"], port["port"]) for rule in rules for port in rule["ports"]}
    assert {("UDP", 53), ("TCP", 53), ("TCP", 6379), ("TCP", 443), ("TCP", 6443)} <= out


def test_prometheus_is_led_to_every_api_with_its_token() -> None:
    [monitor] = of_kind("ServiceMonitor", EVERYTHING).values()
    wanted = monitor["spec"]["selector"]["matchLabels"].items()
    [endpoint] = monitor["spec"]["endpoints"]
    found = [
        name
        for name, service in SERVICES.items()
        if wanted <= service["metadata"]["labels"].items()
        and endpoint["port"] in [port["name"] for port in service["spec"]["ports"]]
    ]
    assert found == ["slb-headless", "slb-discovery"]
    assert endpoint["authorization"]["credentials"] == {"name": "slb", "key": "api-token"}


def test_each_deployment_has_a_disruption_budget_that_lets_nodes_be_drained() -> None:
    budgets = of_kind("PodDisruptionBudget", EVERYTHING)
    assert budgets.keys() == DEPLOYMENTS.keys()
    assert all(budget["spec"]["maxUnavailable"] == 1 for budget in budgets.values())


def test_the_example_has_the_service_that_discovery_follows_and_the_redis_of_the_documents() -> None:
    services = of_kind("Service", EXAMPLE)
    args = container(DEPLOYMENTS["slb-discovery"])["args"]
    [route] = [value for flag, value in itertools.pairwise(args) if flag == "--route"]
    service, _, port = re.sub(r"^.*=service/", "", route).partition(":")
    assert port in [each["name"] for each in services[service]["spec"]["ports"]]
    for name, deployment in of_kind("Deployment", EXAMPLE).items():
        labels = deployment["spec"]["template"]["metadata"]["labels"]
        assert labels == services[name]["spec"]["selector"] == deployment["spec"]["selector"]["matchLabels"]
        assert {each["targetPort"] for each in services[name]["spec"]["ports"]} <= ports(deployment).keys()


def test_the_kustomization_names_every_file_or_says_when_to() -> None:
    text = (FOLDER / "kustomization.yaml").read_text()
    for file in FOLDER.glob("*.yaml"):
        assert file.name == "kustomization.yaml" or f"- {file.name}\n" in text
