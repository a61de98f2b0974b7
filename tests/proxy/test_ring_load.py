"""An upstream that hangs or has too much, and where the requests of its keys go meanwhile."""

import asyncio
from typing import NamedTuple

from tests.proxy.harness import MakeOrigin, MakeProxy, Origin, Proxy, Reply
from tests.proxy.ring_rig import Pod, ask, clockwise, lead, path_of, who_serves
from tests.support.waiting import eventually


async def hanging(proxies: MakeProxy, origins: MakeOrigin, signal: str) -> "Hanging":
    """A route whose first upstream hangs, with a request of its own key at it."""
    pod = Pod()
    all_three = [await origins(pod.handle), await origins(), await origins()]
    proxy = await proxies()
    await lead(proxy, all_three, load_signal=signal)
    path = path_of(all_three[0], all_three)
    first = ask(proxy, path)
    await eventually(lambda: len(all_three[0].requests) == 1)
    return Hanging(proxy, all_three, path, pod, first)


class Hanging(NamedTuple):
    """What `hanging` made; the upstream answers once `pod` may go on."""

    proxy: Proxy
    origins: list[Origin]
    path: str
    pod: Pod
    first: "asyncio.Task[Reply]"

    async def goes_on(self) -> None:
        self.pod.go_on.set()
        assert (await self.first).status == 200
        await self.proxy.at_rest()


async def test_new_requests_of_its_keys_walk_around_an_upstream_that_hangs_and_come_back_when_it_answers(
    proxies: MakeProxy, origins: MakeOrigin
) -> None:
    """One request in flight is not too much, five are: it is passed over for being stuck only."""
    scene = await hanging(proxies, origins, "effective")
    scene.proxy.ahead += 1.0  # by now it is
    following = clockwise(scene.origins, scene.path)[1]
    asked: list[asyncio.Task[Reply]] = []
    while len(following.requests) < 3:
        asked.append(ask(scene.proxy, scene.path))
        await eventually(lambda: sum(len(each.requests) for each in scene.origins) > len(asked))
    assert len(scene.origins[0].requests) <= 3, "its own, and a probe now and then where this machine is slow"
    await scene.goes_on()
    assert {(await each).status for each in asked} == {200}
    scene.proxy.ahead += 10.0  # and what it took is forgotten
    assert await who_serves(scene.proxy, scene.origins, [scene.path]) == {scene.path: scene.origins[0]}


async def test_a_key_never_leaves_its_upstream_where_there_is_no_load_signal(
    proxies: MakeProxy, origins: MakeOrigin
) -> None:
    scene = await hanging(proxies, origins, "off")
    scene.proxy.ahead += 1.0
    second = ask(scene.proxy, scene.path)
    await eventually(lambda: len(scene.origins[0].requests) == 2)
    await scene.goes_on()
    assert (await second).status == 200


async def test_under_skippers_rule_the_next_takes_over_as_soon_as_the_owner_has_more_than_its_part_in_flight(
    proxies: MakeProxy, origins: MakeOrigin
) -> None:
    """One in flight; with the next to come, two among three, times 1.25: less than one each."""
    scene = await hanging(proxies, origins, "inflight")
    assert (await scene.proxy.get(scene.path)).status == 200
    assert len(clockwise(scene.origins, scene.path)[1].requests) == 1
    await scene.goes_on()
    assert await who_serves(scene.proxy, scene.origins, [scene.path]) == {scene.path: scene.origins[0]}
