"""Services of Kubernetes as sources, against an API server of the tests' own."""

import asyncio
from pathlib import Path

import pytest

from slb.discovery import kube_access, kube_api
from slb.discovery.found import Member
from slb.discovery.list_watch import AskTiming
from slb.errors import ConfigError
from tests.discovery.kube_rig import heard
from tests.support.certificates import Authority
from tests.support.kube_api import KubeApi, endpoint, slice_of
from tests.support.waiting import eventually

A, B, C = "10.0.0.1:8000", "10.0.0.2:8000", "10.0.0.3:8000"
ONE, TWO, THREE = (endpoint(f"10.0.0.{number}") for number in (1, 2, 3))


async def test_a_list_then_what_the_watch_tells(kube: KubeApi, authority: Authority) -> None:
    await kube.put(slice_of([ONE]))
    async with heard(kube.url, authority=authority.file) as source:
        await source.says(A)
        assert source.members == {A: Member(zone="zone-a", node="node-1")}
        await kube.put(slice_of([ONE, TWO]))
        await source.says(A, B)
        await kube.put(slice_of([ONE, endpoint("10.0.0.2", ready=False, serving=True, terminating=True)]))
        await source.drains(B)
        await kube.delete("flux-1")
        await source.says()
        assert source.all[-1].is_gone
    assert kube.asked[0][0] == "/apis/discovery.k8s.io/v1/namespaces/ml/endpointslices"
    (watch,) = kube.queries(watches=True)
    assert watch["allowWatchBookmarks"] == "true"
    assert 300 <= int(watch["timeoutSeconds"]) <= 600
    assert watch["labelSelector"] == "kubernetes.io/service-name in (flux)"


async def test_an_empty_first_list_is_not_the_end_of_the_service(kube: KubeApi, authority: Authority) -> None:
    async with heard(kube.url, authority=authority.file) as source:
        await eventually(lambda: bool(source.all))
        assert source.members == {}
        assert not source.all[-1].is_gone


async def test_a_list_is_read_in_pages(
    kube: KubeApi, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kube_api, "_PAGE", 2)
    for number in range(5):
        await kube.put(slice_of([endpoint(f"10.0.1.{number}")], name=f"flux-{number}"))
    async with heard(kube.url, authority=authority.file) as source:
        await source.says(*(f"10.0.1.{number}:8000" for number in range(5)))
    assert [query.get("continue") for query in kube.queries(watches=False)] == [None, "2", "4"]


@pytest.mark.parametrize("form", ["status", "event"])
async def test_a_version_that_is_too_old_is_listed_anew(kube: KubeApi, authority: Authority, form: str) -> None:
    kube.expired = form
    await kube.put(slice_of([ONE]))
    await kube.put(slice_of([TWO], name="flux-2"))
    async with heard(kube.url, authority=authority.file) as source:
        await source.says(A, B)
        await kube.lose("flux-2")
        kube.compact()
        kube.end_watches()
        await source.says(A)
        await kube.put(slice_of([ONE, THREE]))
        await source.says(A, C)
    assert len(kube.queries(watches=False)) == 2


async def test_a_watch_goes_on_from_the_last_bookmark(kube: KubeApi, authority: Authority) -> None:
    await kube.put(slice_of([ONE]))
    async with heard(kube.url, authority=authority.file) as source:
        await source.says(A)
        await eventually(lambda: kube.watching == 1)
        await kube.bookmark()
        kube.compact()
        await kube.put(slice_of([ONE, TWO]))
        await source.says(A, B)
        kube.end_watches()
        await eventually(lambda: len(kube.queries(watches=True)) == 2)
        await kube.put(slice_of([TWO]))
        await source.says(B)
    assert len(kube.queries(watches=False)) == 1


async def test_a_watch_that_the_server_ends_goes_on(kube: KubeApi, authority: Authority) -> None:
    timing = AskTiming(watch=(1.0, 1.0), first=0.05, longest=0.2)
    await kube.put(slice_of([ONE]))
    async with heard(kube.url, authority=authority.file, timing=timing) as source:
        await source.says(A)
        await eventually(lambda: len(kube.queries(watches=True)) == 3)
        await kube.put(slice_of([TWO]))
        await source.says(B)
    assert len(kube.queries(watches=False)) == 1


async def test_the_list_is_read_again_now_and_then(kube: KubeApi, authority: Authority) -> None:
    timing = AskTiming(watch=(300.0, 600.0), relist=1.0, first=0.05, longest=0.2)
    await kube.put(slice_of([ONE]))
    await kube.put(slice_of([TWO], name="flux-2"))
    async with heard(kube.url, authority=authority.file, timing=timing) as source:
        await source.says(A, B)
        await kube.lose("flux-2")  # as a backup that is restored does it: without an event, and without an error
        await source.says(A)


async def test_a_connection_may_be_cut_at_every_byte(kube: KubeApi, authority: Authority) -> None:
    await kube.put(slice_of([ONE]))
    at_once = AskTiming(first=0.001, longest=0.002)
    async with heard(kube.url, authority=authority.file, timing=at_once) as source:
        await source.says(A)
        length = len(str(slice_of([ONE, TWO]))) + 80
        for byte in range(0, length, 3):
            await eventually(lambda: kube.watching == 1)
            kube.cut = byte
            kube.end_watches()
            await eventually(lambda: kube.watching == 1 and kube.cut is None)
            await kube.put(slice_of([ONE] if byte % 2 else [ONE, TWO]))
            await source.says(*([A] if byte % 2 else [A, B]))
    assert len(kube.queries(watches=False)) == 1


async def test_a_frozen_server_is_asked_again_and_what_is_known_stays(
    kube: KubeApi, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kube_api, "_LATE", 0.2)
    await kube.put(slice_of([ONE]))
    async with heard(kube.url, authority=authority.file, timing=AskTiming(watch=(1.0, 1.0), first=0.05)) as source:
        await source.says(A)
        kube.freeze()
        await kube.put(slice_of([ONE, TWO]))
        await eventually(lambda: "no answer in time" in source.source.asked.trouble)
        assert source.members is not None
        assert set(source.members) == {A}
        kube.thaw()
        await source.says(A, B)
        assert not source.source.asked.trouble


async def test_a_token_that_has_expired_is_read_from_its_file_again(
    kube: KubeApi, authority: Authority, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text("first\n")
    kube.tokens = {"first"}
    await kube.put(slice_of([ONE]))
    async with heard(kube.url, authority=authority.file, token=token) as source:
        await source.says(A)
        token.write_text("second\n")
        kube.tokens = {"second"}
        kube.end_watches()
        await kube.put(slice_of([TWO]))
        await source.says(B)


async def test_a_token_is_read_again_each_minute(tmp_path: Path) -> None:
    now, token = [0.0], tmp_path / "token"
    token.write_text("first")
    credentials = kube_access.Credentials(kube_access.Access("https://x", "ml", token), lambda: now[0])
    assert credentials.headers() == {"Authorization": "Bearer first"}
    token.write_text("second")
    now[0] = 59.0
    assert credentials.headers() == {"Authorization": "Bearer first"}
    now[0] = 60.0
    assert credentials.headers() == {"Authorization": "Bearer second"}


async def test_a_refusal_is_shown_as_it_is(kube: KubeApi, authority: Authority) -> None:
    said = 'endpointslices.discovery.k8s.io is forbidden: User "u" cannot list resource in the namespace "ml"'
    await kube.put(slice_of([ONE]))
    kube.refusals = [(403, {}, said)] * 3
    async with heard(kube.url, authority=authority.file) as source:
        await eventually(lambda: source.source.asked.trouble == f"endpointslices: 403 {said}")
        await source.says(A)
        assert not source.source.asked.trouble


async def test_a_server_that_has_too_much_to_do_is_given_the_time_it_asks_for(
    kube: KubeApi, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []
    sleep = asyncio.sleep

    async def sleeping(seconds: float) -> None:
        slept.append(seconds)
        await sleep(0)

    monkeypatch.setattr("slb.discovery.list_watch.asyncio.sleep", sleeping)
    await kube.put(slice_of([ONE]))
    kube.refusals = [(429, {"Retry-After": "7"}, "too many requests"), (503, {"Retry-After": "x"}, "")]
    async with heard(kube.url, authority=authority.file) as source:
        await source.says(A)
    assert any(5.6 <= pause <= 8.4 for pause in slept)


async def test_an_older_server_is_asked_for_v1beta1(authority: Authority) -> None:
    async with KubeApi(authority.server("localhost"), version="v1beta1") as kube:
        topology = {"topology.kubernetes.io/zone": "z", "kubernetes.io/hostname": "n"}
        old = {"addresses": ["10.0.0.1"], "conditions": {"ready": True}, "topology": topology}
        await kube.put(slice_of([old]))
        async with heard(kube.url, authority=authority.file) as source:
            await source.says(A)
            assert source.members == {A: Member(zone="z", node="n")}
            await kube.put(slice_of([ONE]))
            await eventually(lambda: (source.members or {}).get(A) == Member(zone="zone-a", node="node-1"))


async def test_a_server_of_another_authority_is_not_believed(kube: KubeApi, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    await kube.put(slice_of([ONE]))
    async with heard(kube.url, authority=Authority(tmp_path / "other").file) as source:
        await eventually(lambda: "CERTIFICATE_VERIFY_FAILED" in source.source.asked.trouble)
        assert not source.all


async def test_an_event_without_end_is_no_way_to_fill_the_memory(
    kube: KubeApi, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kube_api, "LONGEST_LINE", 2000)
    await kube.put(slice_of([ONE]))
    async with heard(kube.url, authority=authority.file) as source:
        await source.says(A)
        kube.compact()  # what is listed has a bound of its own
        monkeypatch.setattr(kube_api, "LARGEST_PAGE", 4000)
        await kube.put(slice_of([endpoint(f"10.0.2.{number}") for number in range(50)]))
        await eventually(lambda: "more than 4000 bytes" in source.source.asked.trouble)
        assert set(source.members or ()) == {A}
        monkeypatch.undo()
        await eventually(lambda: len(source.members or ()) == 50)


async def test_annotations_of_pods_and_of_the_service(kube: KubeApi, authority: Authority) -> None:
    pod = endpoint("10.0.0.1", pod="flux-a")
    await kube.put(slice_of([pod, TWO]))
    await kube.put(
        {"metadata": {"name": "flux-a", "namespace": "ml", "annotations": {"slb/slots": "4", "slb/weight": "x"}}},
        "pods",
    )
    said = {"slb/weight": "7", "slb/slots": "2", "slb/scheme": "https"}
    await kube.put({"metadata": {"name": "flux", "namespace": "ml", "annotations": said}}, "services")
    async with heard(kube.url, authority=authority.file, annotations=True) as source:
        one, two = f"https://{A}", f"https://{B}"
        await source.says(one, two)
        members = source.members or {}
        assert [(members[each].slots, members[each].weight) for each in (one, two)] == [(4, 7), (2, 7)]
        await kube.delete("flux", "services")
        await source.says(A, B)
        await kube.delete("flux-a", "pods")
        await eventually(lambda: (source.members or {})[A].slots is None)


def test_a_pod_finds_its_own_cluster(tmp_path: Path) -> None:
    (tmp_path / "namespace").write_text("ml\n")
    environ = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "6443"}
    found = kube_access.access_of("", "", None, None, environ, tmp_path)
    shown = found.url, found.namespace, found.token, found.authority
    assert shown == ("https://[fd00::1]:6443", "ml", tmp_path / "token", tmp_path / "ca.crt")
    outside = kube_access.access_of("https://k:6443", "", None, None, environ, tmp_path)
    assert (outside.namespace, outside.token) == ("default", None)
    with pytest.raises(ConfigError, match="KUBERNETES_SERVICE_HOST"):
        kube_access.access_of("", "", None, None, {}, tmp_path)
