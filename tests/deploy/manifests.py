"""The manifests of deploy/kubernetes, and what is asked of them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

Document = dict[str, Any]

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "deploy" / "kubernetes"
CHART = ROOT / "deploy" / "helm" / "slb"
NAMESPACE = "slb"
REDIS = "redis://:p@127.0.0.1:1/0"
TOKEN = "0123456789abcdef"
OPTIONAL = ("discovery-annotations.yaml", "servicemonitor.yaml")
"""What the kustomization only names in a comment."""


def read(*files: Path) -> list[Document]:
    return [each for file in files for each in yaml.safe_load_all(file.read_text()) if each is not None]


def usual() -> list[Document]:
    """What `kubectl apply -k` applies, but for the namespace."""
    [kustomization] = read(FOLDER / "kustomization.yaml")
    return read(*(FOLDER / name for name in kustomization["resources"]))


def optional() -> list[Document]:
    return read(*(FOLDER / name for name in OPTIONAL))


def placed(document: Document, namespace: str = NAMESPACE) -> Document:
    """As kustomize writes it: in the namespace, and so are the accounts that a binding names."""
    made = {**document, "metadata": {**document["metadata"], "namespace": namespace}}
    if "subjects" in document:
        made["subjects"] = [{**subject, "namespace": namespace} for subject in document["subjects"]]
    return made


def of_kind(kind: str, documents: list[Document]) -> dict[str, Document]:
    """By name."""
    return {each["metadata"]["name"]: each for each in documents if each["kind"] == kind}


def pod(deployment: Document) -> Document:
    found: Document = deployment["spec"]["template"]["spec"]
    return found


def container(deployment: Document) -> Document:
    [found] = pod(deployment)["containers"]
    assert isinstance(found, dict)
    return found


def variables(deployment: Document) -> dict[str, str]:
    """What its container's environment says; a field of the pod as its path."""
    return {
        each["name"]: each["value"] if "value" in each else each["valueFrom"]["fieldRef"]["fieldPath"]
        for each in container(deployment)["env"]
    }


def process_of(
    deployment: Document, directory: Path, redis: str = REDIS, volume: Path | None = None
) -> tuple[dict[str, str], Path | None]:
    """The environment of its container, and its config file where it names one: what is mounted stands in
    `directory`, and `volume` is what SLB_DATA_DIR is on."""
    for name, text in {"redis-url": redis, "api-token": TOKEN}.items():
        (directory / name).write_text(text)
    places = {"/etc/slb/secret/": f"{directory}/", "/var/lib/slb/": f"{volume or directory}/"}
    environ = variables(deployment)
    for there, here in places.items():
        environ = {name: value.replace(there, here) for name, value in environ.items()}
    if "SLB_ZONE" in environ:
        environ["SLB_ZONE"] = ""  # as it is before Kubernetes 1.35
    if "/etc/slb/config/slb.toml" not in container(deployment)["args"]:
        return environ, None
    file = directory / "slb.toml"
    file.write_text(of_kind("ConfigMap", usual())["slb"]["data"]["slb.toml"])
    return environ, file


def selectors(document: Document) -> Iterator[dict[str, str]]:
    """All that select pods in it."""
    spec = document.get("spec", {})
    kind = document["kind"]
    if kind == "Service":
        yield spec["selector"]
    if kind in ("Deployment", "PodDisruptionBudget"):
        yield spec["selector"]["matchLabels"]
    if kind == "NetworkPolicy":
        yield spec["podSelector"]["matchLabels"]
    if kind == "Deployment":
        for each in pod(document).get("topologySpreadConstraints", ()):
            yield each["labelSelector"]["matchLabels"]
