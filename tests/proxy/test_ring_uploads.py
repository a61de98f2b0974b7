"""Requests with bodies by the ring: whose turn it is, and so whether an upstream looks stuck."""

import asyncio

from tests.proxy.harness import OK, MakeOrigin, MakeProxy, Request
from tests.proxy.ring_rig import PATHS, Pod, clockwise, lead, policy_of, with_its_probe
from tests.support.waiting import eventually


async def test_an_upstream_that_hangs_once_it_has_a_body_that_came_in_pieces_is_walked_around(
    proxies: MakeProxy, origins: MakeOrigin
) -> None:
    go_on = asyncio.Event()

    async def hang_with_the_body(request: Request) -> None:
        request.whole = await request.body()
        if request.whole:
            await go_on.wait()
        await request.wire.send(OK)

    proxy, all_three = await proxies(), [await origins(hang_with_the_body) for _ in range(3)]
    await lead(proxy, all_three, load_signal="effective", balance_factor="2")
    owner, following, _ = clockwise(all_three, PATHS[0])
    wire = await proxy.connect()
    await wire.send(f"PUT {PATHS[0]} HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhal".encode())
    await eventually(lambda: len(owner.requests) == 1)
    proxy.ahead += 10.0  # it is the client's turn: no upstream is stuck
    assert (await proxy.get(PATHS[0])).status == 200
    assert (len(owner.requests), len(following.requests)) == (2, 0)
    await wire.send(b"ff")
    await eventually(lambda: owner.requests[0].whole == b"halff")
    proxy.ahead += 10.0  # and now it is
    probe = with_its_probe(proxy, owner)
    assert (await proxy.get(PATHS[0])).status == 200
    assert (len(owner.requests), len(following.requests)) == (2, 1)
    probe.release()
    go_on.set()
    assert (await wire.reply()).status == 200


async def test_a_body_that_its_client_sends_slowly_makes_no_upstream_look_stuck_or_slow(
    proxies: MakeProxy, origins: MakeOrigin
) -> None:
    pods = [Pod() for _ in range(3)]
    proxy, all_three = await proxies(), [await origins(pod.handle) for pod in pods]
    for pod in pods:
        pod.go_on.set()
    await lead(proxy, all_three, load_signal="effective")
    owner = clockwise(all_three, PATHS[0])[0]
    wire = await proxy.connect()
    await wire.send(f"PUT {PATHS[0]} HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n".encode())
    for _ in range(5):
        proxy.ahead += 0.2
        await proxy.get(PATHS[0])
        await wire.send(b"x")
    assert (await wire.reply()).status == 200
    assert len(owner.requests) == 6
    load_stats = next(each.load_stats for each, *_ in policy_of(proxy).loads() if each.member == owner.member)
    assert load_stats is not None
    assert load_stats.latency is not None
    assert load_stats.latency < 0.2
