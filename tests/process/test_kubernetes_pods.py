"""The containers of deploy/kubernetes as plain processes: their command, environment and files as pods have them,
with ports that are free here."""

from collections.abc import Mapping
from pathlib import Path

import orjson

from tests.deploy.manifests import TOKEN, container, of_kind, process_of, usual
from tests.process.commands import Commands
from tests.support.certificates import Authority
from tests.support.kube_api import KubeApi, endpoint, slice_of
from tests.support.ports import closed_port
from tests.support.valkey import Valkey
from tests.support.waiting import eventually

DEPLOYMENTS = of_kind("Deployment", usual())


def files_of_a_pod(directory: Path) -> Path:
    """With an emptyDir as an fsGroup makes it: all may write to it, and what is made in it has its group."""
    volume = directory / "volume"
    volume.mkdir(parents=True)
    volume.chmod(0o2777)
    return volume


async def started(slb: Commands, name: str, redis: str, directory: Path, *more: str) -> tuple[str, str]:
    """One pod's container: the URLs of its traffic and its API."""
    deployment = DEPLOYMENTS[name]
    environ, file = process_of(deployment, directory, redis, files_of_a_pod(directory))
    environ |= {"SLB_API": closed_port(), "SLB_LISTEN": closed_port()}
    arguments = [str(file) if word.endswith("slb.toml") else word for word in container(deployment)["args"]]
    process = await slb.start(*arguments, *more, env=environ)
    line = orjson.loads(await process.first_line())
    return next(iter(line["traffic"]), ""), line["api"]


async def answers(slb: Commands, api: str, headers: Mapping[str, str]) -> dict[str, int]:
    paths = {
        container(each)[probe]["httpGet"]["path"]
        for each in DEPLOYMENTS.values()
        for probe in ("startupProbe", "readinessProbe", "livenessProbe")
    }
    return {path: (await slb.get(api + path, **headers))[0] for path in {*paths, "/metrics"}}


async def test_pods_of_a_service_get_the_requests_of_its_route(
    slb: Commands, valkey: Valkey, tmp_path: Path
) -> None:
    authority = Authority(tmp_path)
    _, upstream = await slb.upstream("flux")
    host, _, port = upstream.rpartition(":")
    async with KubeApi(authority.server("localhost")) as kube:
        ports = [{"name": "http", "port": int(port), "protocol": "TCP"}]
        await kube.put(slice_of([endpoint(host)], ports=ports))
        there = ["--api-server", kube.url, "--ca", str(authority.file), "--namespace", "ml"]
        apis = [
            (await started(slb, "slb-discovery", valkey.url, tmp_path / str(number), *there))[1]
            for number in range(DEPLOYMENTS["slb-discovery"]["spec"]["replicas"])
        ]
        traffic, api = await started(slb, "slb", valkey.url, tmp_path / "proxy")
        await slb.until_status(f"{traffic}/models/flux", 200, 30.0)
        for each in (*apis, api):
            await slb.until_status(f"{each}/readyz", 200)
            assert await answers(slb, each, {}) == {"/healthz": 200, "/readyz": 200, "/metrics": 401}
            with_token = await answers(slb, each, {"Authorization": f"Bearer {TOKEN}"})
            assert with_token["/metrics"] == 200
        data = tmp_path / "proxy" / "volume" / "data"
        await eventually(lambda: bool(list(data.glob("table-*.json"))))
