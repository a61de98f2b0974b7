"""Sessions whose upstreams are a service of Kubernetes, without Redis."""

import ast
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from slb.client import CallRefused, ConfigError, Session
from slb.discovery import service_watch
from slb.discovery.service_watch import Service
from tests.client.rig import Upstream
from tests.support.certificates import Authority
from tests.support.documents import samples_of
from tests.support.kube_api import KubeApi, endpoint, slice_of
from tests.support.waiting import eventually


def of(*upstreams: Upstream, **conditions: bool | None) -> dict[str, object]:
    """A slice with the first of them as they are, and the last one under these conditions."""
    ports = {int(each.member.rpartition(":")[2]) for each in upstreams}
    assert len(ports) == 1
    hosts = [each.member.rpartition(":")[0] for each in upstreams]
    endpoints = [*map(endpoint, hosts[:-1]), endpoint(hosts[-1], "", **conditions)]
    return slice_of(endpoints, ports=[{"name": "http", "port": ports.pop()}])


async def test_calls_go_to_the_pods_of_a_service_as_they_come_and_drain(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    async with KubeApi(authority.server("localhost")) as kube:
        one = await Upstream().start("127.0.0.1")
        two = await Upstream().start("127.0.0.2", int(one.member.rpartition(":")[2]))
        await kube.put(of(one))
        service = Service(
            "service/flux:http", namespace="ml", api_server=kube.url, ca=authority.file, debounce=0.01
        )
        async with Session(upstreams=service) as session:
            assert await (await session.get("/x")).text() == "GET /x"
            await kube.put(of(one, two))

            async def both() -> None:
                await (await session.get("/x")).read()

            for _ in range(200):
                await both()
                if two.seen:
                    break
            await eventually(lambda: kube.watching == 1)
            kube.end_watches()
            kube.freeze()  # what is known goes on
            await both()
            kube.thaw()
            await kube.put(of(two, one, ready=False, serving=True, terminating=True))
            mirror = session._feed.mirror
            await eventually(lambda: (live := mirror.upstream(one.member)) is not None and live.spec.drain)
            before = len(one.seen)
            for _ in range(4):
                await both()
            assert len(one.seen) == before
            with pytest.raises(ConfigError, match="a service"):
                session.set_upstreams([one.member])
        assert kube.watching == 0
        await one.stop()
        await two.stop()


async def test_a_service_that_is_not_known_in_time_refuses_calls(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    async with KubeApi(authority.server("localhost")) as kube:
        kube.freeze()
        service = Service("service/flux:http", namespace="ml", api_server=kube.url, ca=authority.file)
        async with Session(upstreams=service, fallback=None) as session:
            with pytest.raises(CallRefused):
                await session.get("/x")


async def test_the_sample_of_the_docs_calls_a_pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (sample,) = samples_of("discovery.md", "Session(")
    authority = Authority(tmp_path)
    async with KubeApi(authority.server("localhost")) as kube:
        one = await Upstream().start("127.0.0.1")
        await kube.put(of(one))
        here = partial(Service, api_server=kube.url, ca=authority.file)  # no pod of a cluster
        monkeypatch.setattr(service_watch, "Service", here)
        names: dict[str, Any] = {}
        await eval(compile(sample, "discovery.md", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), names)
        assert names["image"] == b"POST /generate"
        await one.stop()
