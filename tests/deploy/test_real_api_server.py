"""A real API server takes the manifests, where the variable SLB_KUBE_APISERVER names one: each object is created as
a dry run, and what it gives back has all that was sent, for it drops the fields that it does not know.

1.20, the newest that can be built from Debian's source, has disruption budgets as v1beta1, with the same fields. It
does not know ServiceMonitors, which are the Prometheus operator's."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.manifests import FOLDER, NAMESPACE, Document, optional, placed, read, usual
from tests.support.certificates import Authority
from tests.support.real_kube import APISERVER, ETCD, RealKube, real_kube

pytestmark = [
    pytest.mark.skipif(not APISERVER or ETCD is None, reason="no SLB_KUBE_APISERVER, or no etcd"),
    pytest.mark.timeout(120),
]

_PATHS = {"v1": "/api/v1"}


def missing(sent: Any, back: Any, at: str = "") -> Iterator[str]:
    """What was sent and is not in the answer. Quantities come back in another form, such as 1024Mi as 1Gi."""
    if isinstance(sent, dict):
        for name, value in sent.items():
            if not isinstance(back, dict) or name not in back:
                yield f"{at}.{name}"
            else:
                yield from missing(value, back[name], f"{at}.{name}")
    elif isinstance(sent, list):
        if not isinstance(back, list) or len(back) != len(sent):
            yield at
        else:
            for number, (one, other) in enumerate(zip(sent, back, strict=True)):
                yield from missing(one, other, f"{at}[{number}]")
    elif sent != back:
        yield f"{at} = {back!r}"


def known_to_it(document: Document) -> Document:
    if document["kind"] == "PodDisruptionBudget":
        return {**document, "apiVersion": "policy/v1beta1"}
    return document


def path_of(document: Document) -> str:
    version, kind = document["apiVersion"], document["kind"].lower()
    plural = f"{kind[:-1]}ies" if kind.endswith("y") else f"{kind}s"
    return f"{_PATHS.get(version, f'/apis/{version}')}/namespaces/{NAMESPACE}/{plural}"


@pytest.fixture
async def kube(tmp_path: Path) -> AsyncIterator[RealKube]:
    async with real_kube(tmp_path, Authority(tmp_path)) as made:
        await made.create("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        yield made


async def test_each_object_is_taken_with_all_its_fields(kube: RealKube) -> None:
    example = read(*sorted((FOLDER / "example").glob("*.yaml")))
    documents = [each for each in [*usual(), *optional(), *example] if each["kind"] != "ServiceMonitor"]
    lost = {}
    for document in map(known_to_it, map(placed, documents)):
        back = await kube.create(f"{path_of(document)}?dryRun=All", document)
        name = f"{document['kind']} {document['metadata']['name']}"
        lost[name] = list(missing(document, back))
    assert {name: fields for name, fields in lost.items() if fields} == {}
