"""Requests of one key, and the upstream that has it warm: through the whole proxy."""

from itertools import islice

import pytest

from tests.proxy.harness import MakeOrigin, MakeProxy
from tests.proxy.ring_rig import PATHS, clockwise, ill, lead, owners, policy_of, three, who_serves


async def test_a_path_goes_to_the_upstream_that_the_ring_names(proxies: MakeProxy, origins: MakeOrigin) -> None:
    proxy, all_three = await proxies(), await three(origins)
    await lead(proxy, all_three)
    assert await who_serves(proxy, all_three) == owners(all_three)


async def test_requests_of_one_path_go_to_one_upstream_by_whatever_connection(
    proxies: MakeProxy, origins: MakeOrigin
) -> None:
    proxy, all_three = await proxies(), await three(origins)
    await lead(proxy, all_three)
    for _ in range(5):
        for path in PATHS[:5]:
            await proxy.get(path)
    seen = [{request.target for request in origin.requests} for origin in all_three]
    assert sum(len(targets) for targets in seen) == len(set().union(*seen)) == 5


async def test_other_spellings_of_a_path_and_its_query_mean_the_same_key(
    proxies: MakeProxy, origins: MakeOrigin
) -> None:
    proxy, all_three = await proxies(), await three(origins)
    await lead(proxy, all_three)
    owner = clockwise(all_three, "/products/7")[0]
    for target in ("/products/7", "/products/./7", "/%70roducts/7", "/products/7?size=2"):
        assert (await proxy.get(target)).status == 200
    assert len(owner.requests) == 4


@pytest.mark.parametrize(
    ("hash_key", "target", "headers"),
    [
        ("header:X-Session", "/", {"x_session": "{}"}),
        ("cookie:sid", "/", {"cookie": "a=b; sid={}"}),
        ("query:user", "/?a=b&user={}", {}),
    ],
)
async def test_a_key_is_found_where_hash_key_names_it(
    proxies: MakeProxy, origins: MakeOrigin, hash_key: str, target: str, headers: dict[str, str]
) -> None:
    proxy, all_three = await proxies(), await three(origins)
    await lead(proxy, all_three, hash_key=hash_key)
    for key in ("anna", "ben", "clara", "dora", "emil"):
        owner = clockwise(all_three, key)[0]
        before = len(owner.requests)
        await proxy.get(target.format(key), **{name: value.format(key) for name, value in headers.items()})
        assert len(owner.requests) == before + 1
    assert policy_of(proxy).counts.keyless == 0


async def test_a_client_stays_with_its_upstream_where_the_key_is_its_address(
    proxies: MakeProxy, origins: MakeOrigin
) -> None:
    proxy, all_three = await proxies(), await three(origins)
    await lead(proxy, all_three, hash_key="ip")
    assert set((await who_serves(proxy, all_three)).values()) == {clockwise(all_three, "127.0.0.1")[0]}


async def test_requests_without_the_key_go_round_and_are_counted(proxies: MakeProxy, origins: MakeOrigin) -> None:
    proxy, all_three = await proxies(), await three(origins)
    await lead(proxy, all_three, hash_key="header:X-Session")
    for _ in range(6):
        await proxy.get("/products/1")
    assert [len(origin.requests) for origin in all_three] == [2, 2, 2]
    assert policy_of(proxy).counts.keyless == 6


async def test_a_retry_goes_to_the_next_one_clockwise(proxies: MakeProxy, origins: MakeOrigin) -> None:
    proxy = await proxies()
    all_four = [await origins(ill), *await three(origins)]
    await lead(proxy, all_four)
    paths = list(islice((path for path in PATHS if clockwise(all_four, path)[0] is all_four[0]), 3))
    assert len(paths) == 3
    served = await who_serves(proxy, all_four[1:], paths)
    assert served == {path: clockwise(all_four, path)[1] for path in paths}


async def test_a_retry_without_a_key_does_not_bring_the_next_request_to_the_same_ill_upstream_again(
    proxies: MakeProxy, origins: MakeOrigin
) -> None:
    proxy, two = await proxies(), [await origins(ill), await origins()]
    await lead(proxy, two, hash_key="header:X-Session", eject_after="0")
    assert [(await proxy.get("/")).status for _ in range(6)] == [200] * 6
    assert [len(origin.requests) for origin in two] == [3, 6]
    assert policy_of(proxy).counts.keyless == 6
