"""What lasts long without being stuck: its upstream keeps its keys."""

import asyncio

import pytest

from tests.proxy.harness import OK, MakeOrigin, MakeProxy, Origin, Proxy, Request, Wire
from tests.proxy.ring_rig import lead, path_of, policy_of, who_serves, with_its_probe
from tests.proxy.test_tunnels import UPGRADE, shout
from tests.support.waiting import eventually


async def ok_or_tunnel(request: Request) -> None:
    await (shout(request) if request.all("Upgrade") else request.wire.send(OK))


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
    """Answers requests with `X-Stream` with the head of a stream, whose `wires` the test writes on, others with ok."""

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
    proxy.ahead += 10.0  # nothing has been completed for as long, and nothing sent
    assert await who_serves(proxy, all_three, [path] * 3) == {path: all_three[0]}
    wire.reset()
    await proxy.at_rest()


@pytest.mark.parametrize("kind", ["application/x-ndjson", "text/event-streams", "text/plain; text/event-stream"])
async def test_an_upstream_that_sends_part_of_an_answer_now_and_then_keeps_its_keys_until_it_stops(
    proxies: MakeProxy, origins: MakeOrigin, kind: str
) -> None:
    proxy, stream = await proxies(), Stream(f"Content-Type: {kind}", "Transfer-Encoding: chunked")
    all_three, path, wire = await streaming(proxy, origins, stream)
    pieces = wire.chunks()
    proxy.ahead += 10.0
    for number in range(3):
        await stream.wires[0].send(b"3\r\n{}\n\r\n")
        assert await anext(pieces) == b"{}\n"
        assert policy_of(proxy).pick(proxy.mirror.table.routes["/"].view, path.encode()).member == (
            all_three[0].member
        ), number
        proxy.ahead += 0.1
    proxy.ahead += 10.0
    probe = with_its_probe(proxy, all_three[0])
    assert (await proxy.get(path)).status == 200
    assert len(all_three[0].requests) == 1  # the stream's: this one went to another
    probe.release()


async def test_a_client_that_does_not_read_leaves_its_upstream_the_keys_it_has(
    proxies: MakeProxy, origins: MakeOrigin
) -> None:
    proxy, size = await proxies(), 64 << 20
    all_three, path, wire = await streaming(proxy, origins, stream := Stream(f"Content-Length: {size}"))
    sending = asyncio.create_task(stream.wires[0].send(bytes(size)))
    load_stats = proxy.mirror.upstreams[all_three[0].member].load_stats
    assert load_stats is not None
    await eventually(lambda: load_stats.completed()[0] == 1, what="the client was not waited for")
    proxy.ahead += 10.0
    assert await who_serves(proxy, all_three, [path] * 3) == {path: all_three[0]}
    wire.reset()
    await asyncio.gather(sending, return_exceptions=True)
    await proxy.at_rest()
