"""deploy/helm/slb. What a chart renders only helm itself can tell: SLB_HELM names one, or it is on the PATH.
Without it those tests are skipped, and the values are compared with their schema and the templates."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from slb.loading import load_settings
from tests.deploy.manifests import CHART, NAMESPACE, ROOT, Document, container, of_kind, optional, pod, usual

HELM = os.environ.get("SLB_HELM") or shutil.which("helm")
needs_helm = pytest.mark.skipif(HELM is None, reason="SLB_HELM names no helm, and none is on the PATH")
_OF_HELM = ("app.kubernetes.io/managed-by", "helm.sh/chart")


def ran(*words: str) -> subprocess.CompletedProcess[str]:
    assert HELM is not None
    return subprocess.run([HELM, *words], capture_output=True, text=True, check=False)


def rendered(*sets: str, name: str = "slb") -> list[Document]:
    """What a release of this name would be, with `--set-json NAME=JSON` for each of `sets`."""
    flags = [word for each in sets for word in ("--set-json", each)]
    said = ran("template", name, str(CHART), "--namespace", NAMESPACE, *flags)
    assert said.returncode == 0, said.stderr
    return [each for each in yaml.safe_load_all(said.stdout) if each is not None]


def plain(document: Document) -> Document:
    """Without what only helm writes: its labels, and the namespaces that kustomize writes elsewhere."""
    metadata = {name: value for name, value in document["metadata"].items() if name != "namespace"}
    metadata["labels"] = {name: value for name, value in metadata["labels"].items() if name not in _OF_HELM}
    made = {**document, "metadata": metadata}
    if "subjects" in document:
        made["subjects"] = [
            {name: value for name, value in subject.items() if name != "namespace"}
            for subject in document["subjects"]
        ]
    return made


def by_name(documents: list[Document]) -> dict[tuple[str, str], Document]:
    return {(each["kind"], each["metadata"]["name"]): plain(each) for each in documents}


def paths(value: Any, schema: Mapping[str, Any], at: str = "") -> Iterator[str]:
    """Where `schema` names other values than there are: all objects of this chart are closed, but for those that
    are of Kubernetes."""
    if not isinstance(value, dict) or "properties" not in schema:
        return
    for name in value.keys() - schema["properties"].keys():
        yield f"{at}.{name} is in the values alone"
    for name in schema["properties"].keys() - value.keys() - {"global"}:
        yield f"{at}.{name} is in the schema alone"
    for name in value.keys() & schema["properties"].keys():
        yield from paths(value[name], schema["properties"][name], f"{at}.{name}")


def test_the_schema_has_the_values_there_are_and_no_others() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    assert list(paths(yaml.safe_load((CHART / "values.yaml").read_text()), schema)) == []


def test_the_chart_is_of_this_version() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    [version] = re.findall(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert chart["appVersion"] == version


def test_every_value_is_used_by_a_template() -> None:
    text = "".join(file.read_text() for file in sorted((CHART / "templates").iterdir()))
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    names = {name for each in values.values() if isinstance(each, dict) for name in each} | values.keys()
    assert [name for name in sorted(names) if not re.search(rf"\.{name}\b", text)] == []


@needs_helm
def test_helm_finds_no_fault_with_the_chart() -> None:
    said = ran("lint", "--strict", str(CHART))
    assert said.returncode == 0, said.stdout


@needs_helm
def test_the_defaults_render_the_manifests() -> None:
    assert by_name(rendered()) == by_name(usual())


@needs_helm
def test_what_is_optional_renders_as_in_the_manifests() -> None:
    found = by_name(rendered("discovery.annotations=true", "serviceMonitor.enabled=true"))
    manifests = by_name([*usual(), *optional()])
    assert "--annotations" in container(found["Deployment", "slb-discovery"])["args"]
    container(found["Deployment", "slb-discovery"])["args"].remove("--annotations")
    assert found == manifests


@needs_helm
def test_the_grace_period_follows_the_drain_times(tmp_path: Path) -> None:
    found = rendered(
        "proxy.drain.preStop=7",
        "proxy.drain.delay=11",
        "proxy.drain.timeout=600",
        'proxy.config="workers = 2\\n[defaults]\\nfirst_byte_timeout = \\"10m\\"\\n"',
    )
    deployment = of_kind("Deployment", found)["slb"]
    assert pod(deployment)["terminationGracePeriodSeconds"] == 7 + 11 + 600 + 10
    assert container(deployment)["lifecycle"]["preStop"]["exec"]["command"] == ["sleep", "7"]
    file = tmp_path / "slb.toml"
    file.write_text(of_kind("ConfigMap", found)["slb"]["data"]["slb.toml"])
    settings = load_settings({}, {}, file)
    assert (settings.drain_delay, settings.drain_timeout, settings.workers) == (11.0, 600.0, 2)
    assert settings.route_settings("/p", {}).first_byte_timeout == 600.0


@needs_helm
def test_two_releases_in_one_namespace_share_nothing_but_the_secret() -> None:
    one, two = by_name(rendered(name="a")), by_name(rendered(name="b"))
    assert not one.keys() & two.keys()
    selected = [each["Deployment", f"{name}-slb"]["spec"]["selector"] for name, each in (("a", one), ("b", two))]
    assert selected[0] != selected[1]


@needs_helm
def test_services_of_another_namespace_are_followed_with_a_role_there() -> None:
    found = rendered('discovery.namespace="ml"', 'discovery.selector="tier=gpu"', "discovery.annotations=true")
    for kind in ("Role", "RoleBinding"):
        assert {each["metadata"]["namespace"] for each in of_kind(kind, found).values()} == {"ml"}
    [subject] = of_kind("RoleBinding", found)["slb-discovery"]["subjects"]
    assert subject == {"kind": "ServiceAccount", "name": "slb-discovery", "namespace": NAMESPACE}
    args = container(of_kind("Deployment", found)["slb-discovery"])["args"]
    assert args[-5:] == ["--namespace", "ml", "--selector", "tier=gpu", "--annotations"]


@needs_helm
def test_all_that_may_be_left_out_can_be() -> None:
    found = rendered("discovery.enabled=false", "networkPolicy.enabled=false")
    assert not of_kind("NetworkPolicy", found)
    assert not of_kind("Role", found)
    assert of_kind("Service", found).keys() == {"slb", "slb-headless"}


@needs_helm
def test_what_a_cluster_asks_of_pods_gets_into_them() -> None:
    found = rendered(
        'image={"repository": "registry.test/slb", "tag": "1"}',
        'imagePullSecrets=[{"name": "pull"}]',
        'proxy.nodeSelector={"pool": "edge"}',
        'proxy.tolerations=[{"operator": "Exists"}]',
        'proxy.affinity={"podAntiAffinity": {}}',
        'proxy.podAnnotations={"a": "b"}',
        'proxy.extraEnv=[{"name": "SLB_ACCESS_LOG", "value": "errors"}]',
        'proxy.extraVolumes=[{"name": "tls", "secret": {"secretName": "tls"}}]',
        'proxy.extraVolumeMounts=[{"name": "tls", "mountPath": "/etc/slb/tls"}]',
        'discovery.extraArgs=["--empty-grace", "1m"]',
    )
    deployment = of_kind("Deployment", found)["slb"]
    spec = pod(deployment)
    assert container(deployment)["image"] == "registry.test/slb:1"
    assert (spec["imagePullSecrets"], spec["nodeSelector"]) == ([{"name": "pull"}], {"pool": "edge"})
    assert (spec["tolerations"], spec["affinity"]) == ([{"operator": "Exists"}], {"podAntiAffinity": {}})
    assert deployment["spec"]["template"]["metadata"]["annotations"] == {"a": "b"}
    assert container(deployment)["env"][-1] == {"name": "SLB_ACCESS_LOG", "value": "errors"}
    assert spec["volumes"][-1]["name"] == container(deployment)["volumeMounts"][-1]["name"] == "tls"
    assert container(of_kind("Deployment", found)["slb-discovery"])["args"][-2:] == ["--empty-grace", "1m"]


@needs_helm
@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ("proxy.replicas=0", "replicas"),
        ('proxy.config="listen = \\":80\\""', "config"),
        ('discovery.routes=["flux"]', "routes"),
        ("discovery.routes=[]", "routes"),
        ('proxy.drain.delay="5s"', "delay"),
        ("proxy.workers=2", "workers"),
    ],
)
def test_the_schema_refuses_values_that_slb_or_the_chart_does_not_take(wrong: str, named: str) -> None:
    said = ran("template", "slb", str(CHART), "--set-json", wrong)
    assert said.returncode != 0
    assert named in said.stderr
