"""What is sent again, to which upstream, and what never is."""

import asyncio
import os
import re
import socket
from collections.abc import Callable, Iterator, Sequence

import pytest

from tests.proxy.harness import MakeOrigin, MakeProxy, Origin, Proxy, Reply, Request, Wire
from tests.support.waiting import eventually

Refusing = Callable[[], str]


@pytest.fixture
def refusing() -> Iterator[Refusing]:
    """Makes upstreams that refuse connections: their ports are taken, and nothing listens."""
    taken: list[socket.socket] = []

    def make() -> str:
        taken.append(socket.socket())
        taken[-1].bind(("127.0.0.1", 0))
        return f"127.0.0.1:{taken[-1].getsockname()[1]}"

    yield make
    for each in taken:
        each.close()


def blocking(wire: Wire) -> socket.socket:
    """The socket under one end, to be used behind the event loop's back."""
    return socket.socket(fileno=os.dup(wire.writer.get_extra_info("socket").fileno()))


def status(code: int) -> object:
    async def reply(request: Request) -> None:
        await request.body()
        await request.wire.send(b"HTTP/1.1 %d X\r\nContent-Length: 3\r\n\r\nbad" % code)

    return reply


@pytest.mark.parametrize("code", [502, 503, 504])
async def test_a_get_that_was_not_served_goes_to_another_upstream(
    proxies: MakeProxy, origins: MakeOrigin, origin: Origin, code: int
) -> None:
    proxy = await proxies()
    bad = await origins(status(code))
    proxy.route("/", bad, origin)
    wire = await proxy.connect()
    assert [(await wire.get("/")).status for _ in range(4)] == [200] * 4
    assert proxy.metrics.retries[str(code)] == len(bad.requests) == 2


async def test_another_attempt_goes_to_another_node_first(proxies: MakeProxy, origins: MakeOrigin) -> None:
    proxy = await proxies()
    frozen, good = [await origins(status(503)) for _ in range(4)], await origins()
    proxy.route("/", *frozen, good, retries="1")
    nodes = {each.member: {"node": "n1"} for each in frozen} | {good.member: {"node": "n2"}}
    proxy.mirror.update({}, nodes)
    wire = await proxy.connect()
    assert [(await wire.get("/")).status for _ in range(3)] == [200] * 3


async def test_a_request_that_was_sent_before_counts_as_unsent_where_its_last_upstream_takes_no_connection(
    proxies: MakeProxy, origins: MakeOrigin, refusing: Refusing
) -> None:
    proxy = await proxies()
    bad, closed = await origins(status(503)), refusing()
    proxy.route("/", bad, closed, eject_after="0", policy="round_robin")
    for _ in range(2):  # one begins here, the other there
        await proxy.get("/")
    counted = proxy.metrics.traffic.routes["/"].upstreams[closed]
    assert (counted.unsent, counted.seconds) == (1, 0.0)


@pytest.mark.parametrize("code", [400, 404, 429, 500, 501])
async def test_other_errors_are_answers(proxies: MakeProxy, origins: MakeOrigin, origin: Origin, code: int) -> None:
    proxy = await proxies()
    proxy.route("/", await origins(status(code)), origin)
    assert sorted([(await proxy.get("/")).status for _ in range(4)]) == sorted([200, 200, code, code])
    assert sum(proxy.metrics.retries.values()) == 0


async def test_a_post_that_reached_an_upstream_is_not_sent_again(
    proxies: MakeProxy, origins: MakeOrigin, origin: Origin
) -> None:
    proxy = await proxies()
    proxy.route("/", await origins(status(503)), origin)
    wire = await proxy.connect()
    seen = []
    for _ in range(4):
        await wire.send(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nhi")
        seen.append((await wire.reply()).status)
    assert sorted(seen) == [200, 200, 503, 503]


async def test_a_put_is_sent_again_with_its_body(proxies: MakeProxy, origins: MakeOrigin, origin: Origin) -> None:
    proxy = await proxies()
    proxy.route("/", await origins(status(503)), origin)
    wire = await proxy.connect()
    for _ in range(2):
        await wire.send(b"PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nhi")
        assert (await wire.reply()).status == 200
    assert [request.whole for request in origin.requests] == [b"hi", b"hi"]


async def puts_in_pieces(proxy: Proxy, pieces: Sequence[bytes]) -> Reply:
    """Each piece is sent when the one before has long gone on to an upstream."""
    wire = await proxy.connect()
    await wire.send(b"PUT / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n")
    for piece in pieces:
        await asyncio.sleep(0.02)
        await wire.send(b"%x\r\n%b\r\n" % (len(piece), piece))
    await wire.send(b"0\r\n\r\n")
    return await wire.reply()


async def early(request: Request) -> None:
    await request.wire.send(b"HTTP/1.1 503 X\r\nContent-Length: 0\r\n\r\n")
    await request.body()


@pytest.mark.parametrize("refuses", [status(503), early], ids=["at its end", "while it comes"])
async def test_a_put_whose_body_comes_after_its_head_is_sent_again_with_all_of_it(
    proxies: MakeProxy, origins: MakeOrigin, origin: Origin, refuses: object
) -> None:
    proxy = await proxies()
    proxy.route("/", await origins(refuses), origin)
    for _ in range(2):
        assert (await puts_in_pieces(proxy, [b"one", b"two", b"three"])).status == 200
    assert [request.whole for request in origin.requests] == [b"onetwothree"] * 2


async def test_a_put_of_more_than_is_held_is_not_sent_again(
    proxies: MakeProxy, origins: MakeOrigin, origin: Origin
) -> None:
    proxy = await proxies()
    proxy.route("/", await origins(status(503)), origin)
    seen = [(await puts_in_pieces(proxy, [bytes(40_000)] * 2)).status for _ in range(2)]
    assert sorted(seen) == [200, 503]
    assert [len(request.whole) for request in origin.requests] == [80_000]


async def test_no_upstream_is_tried_twice(proxies: MakeProxy, origins: MakeOrigin) -> None:
    proxy = await proxies()
    three = [await origins(status(503)) for _ in range(3)]
    proxy.route("/", *three, retries="10")
    reply = await proxy.get("/")
    assert (reply.status, reply.body) == (503, b"bad")
    assert [len(each.requests) for each in three] == [1, 1, 1]


async def test_there_are_no_more_attempts_than_set(proxies: MakeProxy, origins: MakeOrigin) -> None:
    proxy = await proxies()
    three = [await origins(status(503)) for _ in range(3)]
    proxy.route("/", *three, retries="1")
    await proxy.get("/")
    assert sum(len(each.requests) for each in three) == 2


async def test_a_reset_before_the_reply_is_retried_for_get(
    proxies: MakeProxy, origins: MakeOrigin, origin: Origin
) -> None:
    async def reset(request: Request) -> None:
        request.wire.reset()

    proxy = await proxies()
    proxy.route("/", await origins(reset), origin)
    wire = await proxy.connect()
    assert [(await wire.get("/")).status for _ in range(4)] == [200] * 4


async def test_nothing_is_retried_once_the_client_has_seen_of_it(
    proxies: MakeProxy, origins: MakeOrigin, origin: Origin
) -> None:
    async def hint_and_fail(request: Request) -> None:
        await request.wire.send(b"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 503 X\r\nContent-Length: 0\r\n\r\n")

    proxy = await proxies()
    proxy.route("/", await origins(hint_and_fail), origin)
    seen = []
    for _ in range(2):
        wire = await proxy.connect()
        reply = await wire.get("/")
        seen.append((await wire.reply()).status if reply.status == 103 else reply.status)
    assert sorted(seen) == [200, 503]


async def test_an_outage_is_not_doubled(proxies: MakeProxy, origins: MakeOrigin) -> None:
    """Everything fails: of a hundred requests at most a fifth are tried again."""
    proxy = await proxies()
    two = [await origins(status(503)) for _ in range(2)]
    proxy.route("/", *two)
    wire = await proxy.connect()
    for _ in range(100):
        await wire.get("/")
    retried = sum(len(each.requests) for each in two) - 100
    assert 3 <= retried <= 21
    assert proxy.metrics.retries == {"503": retried}
    assert proxy.metrics.retries_refused == {("503", "/"): 100 - retried}
    spent = [line for line in proxy.logged() if line["detail"].endswith("the retry budget is spent")]
    assert len(spent) == 100 - retried
    assert {line["attempts"] for line in spent} == {1}


async def test_a_failure_that_is_not_retried_for_want_of_budget_is_logged_so(
    proxies: MakeProxy, origins: MakeOrigin
) -> None:
    async def reset(request: Request) -> None:
        request.wire.reset()

    proxy = await proxies()
    two = [await origins(reset) for _ in range(2)]
    proxy.route("/", *two, eject_after="0")
    details = []
    for _ in range(5):
        await proxy.get("/")
        details.append(proxy.logged()[-1]["detail"])
    members = "|".join(re.escape(each.member) for each in two)
    closed = f"({members}) closed the connection"
    spent = "; no other is tried: the retry budget is spent"
    for tail, detail in zip([""] * 3 + [spent] * 2, details, strict=True):
        assert re.fullmatch(closed + tail, detail)
    assert proxy.metrics.retries_refused == {("upstream_reset", "/"): 2}


@pytest.mark.parametrize("code", [502, 503, 504])
@pytest.mark.parametrize("framed", [True, False], ids=["counted", "until close"])
async def test_an_answer_that_was_not_served_is_logged_with_its_upstream(
    proxies: MakeProxy, origins: MakeOrigin, code: int, framed: bool
) -> None:
    async def refuse(request: Request) -> None:
        await request.body()
        length = b"Content-Length: 3\r\n" if framed else b""
        await request.wire.send(b"HTTP/1.1 %d X\r\n%b\r\nbad" % (code, length))
        if not framed:
            request.wire.close()

    proxy = await proxies(access_log="errors")
    bad = await origins(refuse)
    proxy.route("/", bad)
    reply = await proxy.get("/")
    assert (reply.status, reply.body) == (code, b"bad")
    (line,) = proxy.logged()
    assert (line["status"], line["reason"], line["detail"]) == (code, "", f"{bad.member} answered {code}")


async def test_the_answer_of_an_earlier_attempt_is_not_logged_for_the_one_that_served(
    proxies: MakeProxy, origins: MakeOrigin, origin: Origin
) -> None:
    proxy = await proxies()
    proxy.route("/", await origins(status(503)), origin)
    assert [(await proxy.get("/")).status for _ in range(2)] == [200, 200]
    assert {line["detail"] for line in proxy.logged()} == {""}


async def test_an_attempt_that_failed_is_logged_with_its_exact_destination_even_among_errors_only(
    proxies: MakeProxy, origins: MakeOrigin, origin: Origin
) -> None:
    proxy = await proxies(access_log="errors")
    bad = await origins(status(503))
    proxy.route("/", bad, origin)
    wire = await proxy.connect()
    assert [(await wire.get("/")).status for _ in range(2)] == [200] * 2
    (line,) = proxy.logged()
    assert line["failed"] == [f"{bad.member} answered 503"]
    assert (line["upstream"], line["status"], line["attempts"]) == (origin.member, 200, 2)


@pytest.mark.parametrize("later", [b"", b"hi"], ids=["whole", "head-first"])
async def test_a_post_whose_idle_connection_ends_before_a_byte_of_it_is_written_goes_on_another(
    proxies: MakeProxy, origins: MakeOrigin, later: bytes
) -> None:
    origin = await origins()
    proxy = await proxies()
    proxy.route("/", origin)
    wire = await proxy.connect()
    assert (await wire.get("/")).status == 200
    with blocking(wire) as client, blocking(origin.requests[0].wire) as idle:
        # Both before the event loop looks again, in this order: the request takes a connection that has just ended.
        client.send(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nhi".removesuffix(later))
        idle.shutdown(socket.SHUT_WR)
    await eventually(lambda: origin.connections == 2)
    await wire.send(later)
    assert (await wire.reply()).status == 200
    assert (origin.requests[1].whole, origin.connections) == (b"hi", 2)


async def test_an_upstream_that_goes_by_its_address_is_named_once_where_it_refuses(
    proxy: Proxy, origin: Origin, refusing: Refusing
) -> None:
    away = refusing()
    proxy.route("/", away, origin)
    assert [(await proxy.get("/")).status for _ in range(2)] == [200] * 2
    assert [line["failed"] for line in proxy.logged() if "failed" in line] == [[f"{away}: Connection refused"]]


async def test_a_refused_connection_is_tried_elsewhere_however_often(
    proxies: MakeProxy, origin: Origin, refusing: Refusing
) -> None:
    proxy = await proxies()
    proxy.route("/", refusing(), origin, eject_after="0")
    wire = await proxy.connect()
    assert [(await wire.get("/")).status for _ in range(40)] == [200] * 40


@pytest.mark.parametrize("cap", [{}, {"max_inflight": "9"}], ids=["uncounted", "counted"])
@pytest.mark.parametrize("policy", ["round_robin", "weighted_round_robin"])
async def test_another_attempt_takes_nobodys_turn(
    proxies: MakeProxy, origins: MakeOrigin, refusing: Refusing, policy: str, cap: dict[str, str]
) -> None:
    """Else every second request would meet the one that is ill, and not every third."""
    proxy = await proxies()
    proxy.route("/", refusing(), await origins(), await origins(), policy=policy, eject_after="0", **cap)
    wire = await proxy.connect()
    assert [(await wire.get("/")).status for _ in range(30)] == [200] * 30
    assert proxy.metrics.retries == {"upstream_connect": 10}
