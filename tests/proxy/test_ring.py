"""Requests of one key, and the upstream that has it warm: through the whole proxy."""

import asyncio
from collections.abc import Iterable, Sequence
from itertools import count, islice
from typing import NamedTuple

import pytest

from slb.balance.consistent_hash import ConsistentHash
from slb.balance.ring import Ring
from slb.balance.upstream import LiveUpstream
from slb.model import RouteRecord, Upstream
from tests.proxy.harness import OK, MakeOrigin, MakeProxy, Origin, Proxy, Reply, Request, Wire
from tests.proxy.test_tunnels import UPGRADE, shout
from tests.support.valkey import Valkey
from tests.support.waiting import eventually

PATHS = [f"/products/{number}" for number in range(40)]
LONG = "10m"
LONG_SECONDS = 600.0


class Pod:
    """An origin that answers when it is told to."""

    def __init__(self) -> None:
        self.go_on = asyncio.Event()

    async def handle(self, request: Request) -> None:
        await request.body()
        await self.go_on.wait()
        await request.wire.send(OK)


async def ill(request: Request) -> None:
    await request.wire.send(b"HTTP/1.1 503 Ill\r\nContent-Length: 0\r\n\r\n")


def ring_of(origins: Iterable[Origin]) -> Ring:
    """What the proxy has to agree with."""
    return Ring.of(LiveUpstream(Upstream.of(origin.member)) for origin in origins)


def clockwise(origins: Sequence[Origin], key: str) -> list[Origin]:
    """As the ring has them for `key`: its owner first."""
    by_member = {origin.member: origin for origin in origins}
    return [by_member[upstream.member] for upstream in ring_of(origins).walk(key.encode())]


def owners(origins: Sequence[Origin]) -> dict[str, Origin]:
    """Whose each of PATHS is."""
    return {path: clockwise(origins, path)[0] for path in PATHS}


def path_of(origin: Origin, among: Sequence[Origin]) -> str:
    """One that is `origin`'s."""
    return next(path for path in (f"/products/x{n}" for n in count()) if clockwise(among, path)[0] is origin)


def policy_of(proxy: Proxy, path: str = "/") -> ConsistentHash:
    ring = proxy.mirror.table.routes[path].policy.ring
    assert ring is not None
    return ring


def decides(proxy: Proxy, path: str) -> bool:
    """Whether there is a ring for this route by now."""
    ring, before = policy_of(proxy, path), policy_of(proxy, path).unready
    ring.pick(proxy.mirror.table.routes[path].serving, b"any")
    return ring.unready == before


BY_KEY_ALONE = {"policy": "consistent_hash", "load_signal": "off"}
"""How busy an upstream seems depends on how busy this machine is."""


async def lead(proxy: Proxy, origins: Sequence[Origin], path: str = "/", **settings: str) -> None:
    """Make `path` lead to these by a ring that is there on return."""
    proxy.route(path, *origins, **{**BY_KEY_ALONE, **settings})
    await eventually(lambda: decides(proxy, path), what="no ring was made")


async def who_serves(proxy: Proxy, origins: Sequence[Origin], paths: Iterable[str] = PATHS) -> dict[str, Origin]:
    """Each path, and who was asked for it."""
    for origin in origins:
        origin.requests.clear()
    for path in paths:
        assert (await proxy.get(path)).status == 200
    return {request.target: origin for origin in origins for request in origin.requests}


async def three(origins: MakeOrigin) -> list[Origin]:
    return [await origins() for _ in range(3)]


def ask(proxy: Proxy, path: str) -> "asyncio.Task[Reply]":
    return asyncio.create_task(proxy.get(path))


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
async def test_a_key_is_found_where_hash_key_says(
    proxies: MakeProxy, origins: MakeOrigin, hash_key: str, target: str, headers: dict[str, str]
) -> None:
    proxy, all_three = await proxies(), await three(origins)
    await lead(proxy, all_three, hash_key=hash_key)
    for key in ("anna", "ben", "clara", "dora", "emil"):
        owner = clockwise(all_three, key)[0]
        before = len(owner.requests)
        await proxy.get(target.format(key), **{name: value.format(key) for name, value in headers.items()})
        assert len(owner.requests) == before + 1
    assert policy_of(proxy).keyless == 0


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
    assert policy_of(proxy).keyless == 6


async def test_the_keys_of_an_ejected_upstream_go_to_the_next_ones_clockwise_and_come_back(
    proxies: MakeProxy, origins: MakeOrigin
) -> None:
    proxy, all_three = await proxies(), await three(origins)
    await lead(proxy, all_three)
    out = all_three[0]
    upstream = proxy.mirror.upstream(out.member)
    assert upstream is not None
    upstream.available = False
    proxy.mirror.refresh([out.member])
    assert await who_serves(proxy, all_three) == {
        path: next(origin for origin in clockwise(all_three, path) if origin is not out) for path in PATHS
    }
    upstream.available = True
    proxy.mirror.refresh([out.member])
    assert await who_serves(proxy, all_three) == owners(all_three)


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
    assert policy_of(proxy).keyless == 6


async def test_an_upstream_that_leaves_loses_its_keys_at_once_and_no_other_key_moves(
    proxies: MakeProxy, origins: MakeOrigin
) -> None:
    proxy, all_three = await proxies(), await three(origins)
    await lead(proxy, all_three)
    proxy.route("/", *all_three[1:], **BY_KEY_ALONE)
    before, after = owners(all_three), await who_serves(proxy, all_three)
    assert after == owners(all_three[1:])
    assert {path for path in PATHS if before[path] is not after[path]} == {
        path for path in PATHS if before[path] is all_three[0]
    }


async def test_a_new_upstream_has_just_its_own_keys_once_it_has_faded_in(
    proxies: MakeProxy, origins: MakeOrigin
) -> None:
    proxy, all_three = await proxies(), await three(origins)
    old = all_three[:2]
    settings = {"fade_in": LONG, "ring_debounce": "0"}
    await lead(proxy, old, **settings)
    proxy.route("/", *all_three, **BY_KEY_ALONE, **settings)
    assert await who_serves(proxy, all_three) == owners(old)
    proxy.ahead += LONG_SECONDS
    proxy.route("/other", *all_three)  # a swap wakes who waits by another clock
    await eventually(lambda: policy_of(proxy).wake == float("inf"))
    assert await who_serves(proxy, all_three) == owners(all_three)


async def test_a_new_upstream_that_does_not_fade_in_has_its_keys_as_soon_as_the_ring_is_made(
    proxies: MakeProxy, origins: MakeOrigin
) -> None:
    proxy, all_three = await proxies(), await three(origins)
    await lead(proxy, all_three[:2], ring_debounce="0")
    proxy.route("/", *all_three, **BY_KEY_ALONE, ring_debounce="0")
    path = path_of(all_three[2], all_three)
    key = path.encode()
    route = proxy.mirror.table.routes["/"]
    await eventually(lambda: policy_of(proxy).pick(route.serving, key).member == all_three[2].member)
    assert await who_serves(proxy, all_three) == owners(all_three)


async def test_with_a_cap_each_request_of_a_key_goes_to_the_first_clockwise_that_has_room(
    proxies: MakeProxy, origins: MakeOrigin, valkey: Valkey
) -> None:
    pods = [Pod() for _ in range(3)]
    all_three = [await origins(pod.handle) for pod in pods]
    fleet = [await proxies(redis=valkey.url, name=f"i{number}") for number in range(2)]
    for proxy in fleet:
        await lead(proxy, all_three, path="/products", max_inflight="2")
    order = clockwise(all_three, PATHS[0])
    replies = []
    for number in range(6):  # whichever instance they come by: the count is the fleet's
        replies.append(ask(fleet[number % 2], PATHS[0]))
        await eventually(lambda number=number: len(order[number // 2].requests) == 1 + number % 2)  # type: ignore[misc]
    assert (await fleet[0].get(PATHS[0])).reason == "pool_saturated"
    for pod in pods:
        pod.go_on.set()
    assert [(await reply).status for reply in replies] == [200] * 6


async def test_with_a_cap_requests_one_at_a_time_stay_with_the_owner_of_their_key(
    proxies: MakeProxy, origins: MakeOrigin, valkey: Valkey
) -> None:
    proxy, all_three = await proxies(redis=valkey.url), await three(origins)
    await lead(proxy, all_three, path="/products", max_inflight="2")
    assert await who_serves(proxy, all_three) == owners(all_three)


async def test_with_a_cap_the_zone_is_used_as_soon_as_it_has_enough_upstreams(
    proxies: MakeProxy, origins: MakeOrigin, valkey: Valkey
) -> None:
    proxy, all_three = await proxies(redis=valkey.url, zone="a"), await three(origins)
    zones = {"zone_affinity": "true", "zone_min_upstreams": "2", "zone_delay": "0s"}
    settings = {**BY_KEY_ALONE, **zones, "max_inflight": "9", "ring_debounce": "0s", "fade_in": "0s"}

    async def zone_share(*zone: str) -> float:
        attributes = {each.member: {"zone": name} for each, name in zip(all_three, zone, strict=False)}
        proxy.mirror.update({"/": RouteRecord(frozenset(attributes), settings)}, attributes)
        await eventually(lambda: policy_of(proxy).wake > proxy._clock(), what="the rings are not in step")
        for _ in range(2):
            assert (await proxy.get("/")).status == 200
        return policy_of(proxy).zone_share

    assert await zone_share("a", "b") == 0.0
    assert await zone_share("a", "b", "a") > 0.0
    assert await zone_share("a", "b", "b") == 0.0


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
    for number in range(1, 4):
        assert (await scene.proxy.get(scene.path)).status == 200
        assert len(following.requests) == number
    await scene.goes_on()
    scene.proxy.ahead += 10.0  # and what it took is forgotten
    assert await who_serves(scene.proxy, scene.origins, [scene.path]) == {scene.path: scene.origins[0]}


async def test_an_idle_tunnel_leaves_its_upstream_the_keys_it_has(proxies: MakeProxy, origins: MakeOrigin) -> None:
    proxy, all_three = await proxies(), [await origins(ok_or_tunnel) for _ in range(3)]
    await lead(proxy, all_three, load_signal="effective", balance_factor="2")
    path = path_of(all_three[0], all_three)
    wire = await proxy.connect()
    await wire.send(UPGRADE.replace(b"/chat", path.encode()))
    assert (await wire.head())[0] == "HTTP/1.1 101 Switching Protocols"
    proxy.ahead += 10.0  # nothing has been completed for as long
    assert await who_serves(proxy, all_three, [path] * 3) == {path: all_three[0]}
    wire.reset()
    await proxy.at_rest()


class Stream:
    """Answers `/products/x...` with a stream of this head and type, and all else with ok. `say` sends a piece."""

    def __init__(self, *fields: str) -> None:
        self._head = "".join(f"{field}\r\n" for field in ("HTTP/1.1 200 OK", *fields, "")).encode()
        self.wires: list[Wire] = []

    async def handle(self, request: Request) -> None:
        if request.one("X-Stream"):
            self.wires.append(request.wire)
            await request.wire.send(self._head)
        else:
            await request.wire.send(OK)


async def streaming(proxy: Proxy, origins: MakeOrigin, stream: Stream) -> "tuple[list[Origin], str, Wire]":
    """A stream from the first of three upstreams, and a path of its own."""
    all_three = [await origins(stream.handle) for _ in range(3)]
    await lead(proxy, all_three, load_signal="effective", balance_factor="1.25")
    path = path_of(all_three[0], all_three)
    wire = await proxy.connect()
    await wire.send(f"GET {path} HTTP/1.1\r\nHost: example.test\r\nX-Stream: 1\r\n\r\n".encode())
    assert (await wire.head())[0] == "HTTP/1.1 200 OK"
    return all_three, path, wire


@pytest.mark.parametrize(
    "fields",
    [
        ("Content-Type: text/event-stream", "Transfer-Encoding: chunked"),
        ("content-type:Text/Event-Stream;charset=utf-8", "Transfer-Encoding: chunked"),
        ("Content-Type: text/event-stream ; charset=utf-8", "Connection: close"),
    ],
)
async def test_events_that_never_end_leave_their_upstream_the_keys_it_has(
    proxies: MakeProxy, origins: MakeOrigin, fields: tuple[str, ...]
) -> None:
    proxy = await proxies()
    all_three, path, wire = await streaming(proxy, origins, Stream(*fields))
    proxy.ahead += 10.0  # nothing has been completed for as long, and nothing said
    assert await who_serves(proxy, all_three, [path] * 3) == {path: all_three[0]}
    wire.reset()
    await proxy.at_rest()


@pytest.mark.parametrize("kind", ["application/x-ndjson", "text/event-streams", "text/plain; text/event-stream"])
async def test_who_sends_part_of_an_answer_now_and_then_keeps_its_keys_until_it_stops(
    proxies: MakeProxy, origins: MakeOrigin, kind: str
) -> None:
    proxy, stream = await proxies(), Stream(f"Content-Type: {kind}", "Transfer-Encoding: chunked")
    all_three, path, wire = await streaming(proxy, origins, stream)
    pieces = wire.chunks()
    proxy.ahead += 10.0
    for number in range(3):
        await stream.wires[0].send(b"3\r\n{}\n\r\n")
        assert await anext(pieces) == b"{}\n"
        assert policy_of(proxy).pick(proxy.mirror.table.routes["/"].serving, path.encode()).member == (
            all_three[0].member
        ), number
        proxy.ahead += 0.1
    proxy.ahead += 10.0
    assert (await proxy.get(path)).status == 200
    assert len(all_three[0].requests) == 1  # the stream's: this one went to another


async def test_a_client_that_does_not_read_leaves_its_upstream_the_keys_it_has(
    proxies: MakeProxy, origins: MakeOrigin
) -> None:
    proxy, size = await proxies(), 64 << 20
    all_three, path, wire = await streaming(proxy, origins, stream := Stream(f"Content-Length: {size}"))
    sending = asyncio.create_task(stream.wires[0].send(bytes(size)))
    signals = proxy.mirror.upstreams[all_three[0].member].signals
    assert signals is not None
    await eventually(lambda: signals.completed()[0] == 1, what="the client was not waited for")
    proxy.ahead += 10.0
    assert await who_serves(proxy, all_three, [path] * 3) == {path: all_three[0]}
    wire.reset()
    await asyncio.gather(sending, return_exceptions=True)
    await proxy.at_rest()


async def ok_or_tunnel(request: Request) -> None:
    await (shout(request) if request.all("Upgrade") else request.wire.send(OK))


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


@pytest.mark.parametrize("how", ["emptied", "by another policy", "gone"])
async def test_a_retry_by_a_route_that_is_no_more_is_answered(
    proxies: MakeProxy, origins: MakeOrigin, how: str
) -> None:
    gate = asyncio.Event()

    async def ill_later(request: Request) -> None:
        await gate.wait()
        await ill(request)

    proxy, two = await proxies(), [await origins(ill_later) for _ in range(2)]
    await lead(proxy, two, load_signal="effective")
    asked = ask(proxy, "/products/1")
    await eventually(lambda: sum(len(origin.requests) for origin in two) == 1)
    if how == "gone":
        proxy.mirror.update({"/": None}, {})
    elif how == "emptied":
        proxy.route("/", policy="consistent_hash")
    else:
        proxy.route("/", *two, policy="round_robin")
    await asyncio.sleep(0.05)  # longer than from one look at the pool to the next
    gate.set()
    assert (await asyncio.wait_for(asked, 5)).status == 503
    assert sum(len(origin.requests) for origin in two) == 2


async def test_a_body_that_its_client_sends_slowly_makes_nobody_look_stuck_or_slow(
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
        await asyncio.sleep(0.2)
        await proxy.get(PATHS[0])
        await wire.send(b"x")
    assert (await wire.reply()).status == 200
    assert len(owner.requests) == 6
    signals = next(each.signals for each, *_ in policy_of(proxy).loads() if each.member == owner.member)
    assert signals is not None
    assert signals.latency is not None
    assert signals.latency < 0.2
