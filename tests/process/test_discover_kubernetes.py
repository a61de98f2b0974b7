"""`slb discover kubernetes` beside a proxy, as real processes: pods come and go, writers are killed and frozen."""

import os
import re
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from slb.demo.processes import Process
from tests.process.commands import Commands, Serving
from tests.support.certificates import Authority
from tests.support.kube_api import KubeApi, endpoint, slice_of
from tests.support.valkey import Valkey
from tests.support.waiting import until

_API = re.compile(r"API (http://[0-9.]+:[0-9]+)")
ONE, TWO, THREE = (endpoint(f"127.0.0.{number}") for number in (1, 2, 3))


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
async def kube(authority: Authority) -> AsyncIterator[KubeApi]:
    async with KubeApi(authority.server("localhost")) as made:
        made.tokens = {"secret"}
        yield made


@pytest.fixture
def discover(slb: Commands, valkey: Valkey, kube: KubeApi, authority: Authority, tmp_path: Path) -> Any:
    """Starts an instance that follows service/flux for /models/flux; its process, and the URL of its API."""
    (tmp_path / "token").write_text("secret\n")

    async def start(name: str, *more: str) -> tuple[Process, str]:
        flags = ["--api", "127.0.0.1:0", "--redis", valkey.url, "--data-dir", str(slb.directory / "data")]
        access = ["--api-server", kube.url, "--token-file", str(tmp_path / "token"), "--ca", str(authority.file)]
        named = ["--name", name, "--namespace", "ml", "--route", "/models/flux=service/flux:http"]
        process = await slb.start("discover", "kubernetes", *flags, *access, *named, *more)
        found = _API.search(await process.first_line())
        assert found is not None
        return process, found[1]

    return start


async def members(slb: Commands, proxy: Serving) -> set[str]:
    """Of the route, as the proxy serves it."""
    routes = (await slb.json(f"{proxy.api}/routes"))["routes"]
    return {each["member"] for route in routes if route["path"] == "/models/flux" for each in route["members"]}


async def shown(slb: Commands, url: str) -> Any:
    (source,) = (await slb.json(f"{url}/status"))["discovery"]
    return source


async def test_pods_are_served_as_they_come_and_a_killed_or_frozen_writer_is_replaced(
    slb: Commands, valkey: Valkey, kube: KubeApi, discover: Any
) -> None:
    await kube.put(slice_of([ONE]))
    proxy = await slb.serve(redis=valkey.url)
    first, at_first = await discover("first")
    await until(lambda: members(slb, proxy), lambda found: found == {"127.0.0.1:8000"})
    source = await shown(slb, at_first)
    assert (source["source"], source["path"]) == ("kubernetes/ml/flux:http", "/models/flux")
    assert (source["writer"], source["writes"], source["members"], source["trouble"]) == ("first", True, 1, "")
    second, at_second = await discover("second")
    await until(lambda: shown(slb, at_second), lambda found: found["writer"] == "first" and not found["writes"])
    assert kube.watching == 1  # one asks for all

    os.kill(first.pid, signal.SIGSTOP)
    await until(lambda: shown(slb, at_second), lambda found: found["writes"], timeout=30.0)
    await kube.put(slice_of([TWO]))
    await until(lambda: members(slb, proxy), lambda found: found == {"127.0.0.2:8000"})
    os.kill(first.pid, signal.SIGCONT)  # it has heard of both by now, and may not write them
    await until(lambda: shown(slb, at_first), lambda found: found["writer"] == "second" and not found["writes"])
    assert await members(slb, proxy) == {"127.0.0.2:8000"}

    second.kill()
    await kube.put(slice_of([TWO, THREE]))
    await until(
        lambda: members(slb, proxy), lambda found: found == {"127.0.0.2:8000", "127.0.0.3:8000"}, timeout=30.0
    )
    assert await first.stop() == 0


async def test_a_proxy_discovers_by_itself_and_goes_on_without_the_api_server(
    slb: Commands, valkey: Valkey, kube: KubeApi, authority: Authority, tmp_path: Path
) -> None:
    await kube.put(slice_of([ONE, TWO]))
    (tmp_path / "token").write_text("secret\n")
    config = tmp_path / "slb.toml"
    config.write_text(
        f'roles = "proxy,discovery"\n[discovery.kubernetes]\nnamespace = "ml"\napi_server = "{kube.url}"\n'
        f'token_file = "{tmp_path / "token"}"\nca = "{authority.file}"\n'
        '[discovery.kubernetes.routes]\n"/models/flux" = "service/flux:http"\n'
    )
    proxy = await slb.serve("--config", str(config), redis=valkey.url)
    await until(lambda: members(slb, proxy), lambda found: len(found) == 2)
    kube.freeze()
    kube.end_watches()
    assert len(await members(slb, proxy)) == 2
    _, metrics = await slb.get(f"{proxy.api}/metrics")
    assert 'slb_discovery_members{route="/models/flux",source="kubernetes/ml/flux:http"} 2.0' in metrics


async def test_what_cannot_be_followed_is_refused_at_the_start(slb: Commands) -> None:
    for route, said in {
        "/a=flux:http": "is not service/NAME",
        "/a=service/Flux": "is not service/NAME",
        "/a=ftp+service/flux": "the scheme is http or https",
        "a=service/flux": "does not start with '/'",
        "/a": "is not KEY=VALUE",
    }.items():
        result = await slb.run("discover", "kubernetes", "--route", route, "--api-server", "https://localhost:1")
        assert result.code != 0
        assert said in result.err
    outside = await slb.run(
        "discover", "kubernetes", "--route", "/a=service/flux", env={"KUBERNETES_SERVICE_HOST": ""}
    )
    assert "KUBERNETES_SERVICE_HOST" in outside.err
