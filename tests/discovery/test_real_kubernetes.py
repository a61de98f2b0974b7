"""The questions of test_kubernetes.py, asked of a real kube-apiserver 1.20 where SLB_KUBE_APISERVER names one."""

import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from slb.discovery import kube_api
from slb.discovery.found import Member
from slb.discovery.list_watch import AskTiming
from tests.discovery.kube_rig import QUICK, heard
from tests.support.certificates import Authority
from tests.support.kube_api import endpoint, slice_of
from tests.support.real_kube import APISERVER, ETCD, WATCHER, RealKube, real_kube
from tests.support.waiting import eventually

pytestmark = pytest.mark.skipif(not (APISERVER and ETCD), reason="SLB_KUBE_APISERVER names no kube-apiserver")

A, B, C = "10.0.0.1:8000", "10.0.0.2:8000", "10.0.0.3:8000"
ONE, TWO, THREE = (endpoint(f"10.0.0.{number}") for number in (1, 2, 3))


@pytest.fixture
async def kube(tmp_path: Path, authority: Authority) -> AsyncIterator[RealKube]:
    async with real_kube(tmp_path, authority) as made:
        yield made


@pytest.fixture
def token(tmp_path: Path) -> Path:
    file = tmp_path / "token"
    file.write_text(WATCHER)
    return file


def holds(token: Path, text: str) -> None:
    token.write_text(text)


async def test_a_list_then_what_the_watch_tells(kube: RealKube, authority: Authority, token: Path) -> None:
    await kube.put(slice_of([ONE]))
    async with heard(kube.url, token=token, authority=authority.file) as source:
        await source.says(A)
        assert source.members == {A: Member(zone="zone-a", node="node-1")}
        await kube.put(slice_of([ONE, TWO]))
        await source.says(A, B)
        await kube.put(slice_of([THREE], name="flux-2"))
        await source.says(A, B, C)
        await kube.put(slice_of([ONE, endpoint("10.0.0.2", ready=False, serving=True, terminating=True)]))
        await source.drains(B)
        await kube.delete("flux-2")
        await source.says(A, B)
        await kube.delete("flux-1")
        await source.says()
        assert source.all[-1].is_gone


async def test_pages_bookmarks_and_watches_that_end(
    kube: RealKube, authority: Authority, token: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kube_api, "_PAGE", 2)
    for number in range(5):
        await kube.put(slice_of([endpoint(f"10.0.1.{number}")], name=f"flux-{number}"))
    everything = [f"10.0.1.{number}:8000" for number in range(5)]
    timing = AskTiming(watch=(2.0, 2.0), first=0.05, longest=0.2)
    async with heard(kube.url, token=token, authority=authority.file, timing=timing) as source:
        await source.says(*everything)
        answered = source.source.asked.answered_at
        await eventually(lambda: source.source.asked.answered_at > answered + 3, timeout=30.0)  # the next watch
        await kube.put(slice_of([THREE], name="flux-0"))
        await source.says(C, *everything[1:])


async def test_a_server_that_is_killed_frozen_and_started_again(
    kube: RealKube, authority: Authority, token: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kube_api, "_LATE", 1.0)
    timing = AskTiming(watch=(3.0, 3.0), first=0.05, longest=0.2)
    await kube.put(slice_of([ONE]))
    async with heard(kube.url, token=token, authority=authority.file, timing=timing) as source:
        await source.says(A)
        kube.kill()
        await eventually(lambda: bool(source.source.asked.trouble))
        assert set(source.members or ()) == {A}
        kube.start_apiserver()
        await kube.ready()
        await kube.put(slice_of([ONE, TWO]))  # its watch cache begins behind the version that is asked for
        await source.says(A, B)
        kube.signal(signal.SIGSTOP)
        await eventually(lambda: "no answer in time" in source.source.asked.trouble, timeout=60.0)
        assert set(source.members or ()) == {A, B}
        kube.signal(signal.SIGCONT)
        await kube.put(slice_of([TWO]))
        await source.says(B)


async def test_tokens_and_roles(kube: RealKube, authority: Authority, token: Path) -> None:
    await kube.put(slice_of([ONE]))
    holds(token, "none")
    async with heard(kube.url, token=token, authority=authority.file, timing=QUICK) as source:
        wanted = 'endpointslices.discovery.k8s.io is forbidden: User "nobody" cannot list resource "endpointslices"'
        await eventually(lambda: wanted in source.source.asked.trouble)
    holds(token, "another")
    async with heard(kube.url, token=token, authority=authority.file, timing=QUICK) as source:
        await eventually(lambda: source.source.asked.trouble == "endpointslices: 401 Unauthorized")
        holds(token, WATCHER)
        await source.says(A)
