"""Servers that hang where they look alive: before their answer, behind its head, or in the middle of it."""

import asyncio
from collections.abc import Sequence

import pytest

from slb.balance import pace
from tests.proxy.harness import Handler, MakeOrigin, MakeProxy, Origin, Proxy, Request, Wire
from tests.proxy.slots_rig import Fleet, serving
from tests.support.waiting import eventually, until
from tests.support.witness import Recorder, stuck_soon

BODY = b"Ping"
HEAD = b"POST /p HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\n"
STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
TOKEN, END = b"9\r\ndata: 1\n\n\r\n", b"0\r\n\r\n"
TOGETHER, APART = (HEAD + BODY,), (HEAD, BODY)
"""How a request comes: a client may send its body in a packet of its own."""
WHOLE = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


def begins(*sent: bytes, go_on: asyncio.Event, rest: bytes) -> Handler:
    """Sends this much of its answer, and the `rest` when it may."""

    async def answer(request: Request) -> None:
        await request.body()
        for data in sent:
            await request.wire.send(data)
        await go_on.wait()
        await request.wire.send(rest)

    return answer


async def ask(proxy: Proxy, parts: Sequence[bytes], origins: Sequence[Origin]) -> Wire:
    """A request that has come to one of `origins` whole."""
    wire, before = await proxy.connect(), sum(len(each.requests) for each in origins)
    await wire.send(parts[0])
    await eventually(lambda: sum(len(each.requests) for each in origins) > before, what="the head does not come")
    for part in parts[1:]:
        await wire.send(part)
    return wire


@pytest.mark.parametrize(
    ("parts", "sent", "rest"),
    [
        pytest.param(TOGETHER, (), WHOLE, id="no answer"),
        pytest.param(APART, (), WHOLE, id="no answer to a body that came late"),
        pytest.param(TOGETHER, (STREAM,), TOKEN + END, id="a head and no token"),
        pytest.param(APART, (STREAM,), TOKEN + END, id="a head and no token after a late body"),
        pytest.param(TOGETHER, (STREAM, TOKEN), TOKEN + END, id="no further token"),
    ],
)
async def test_a_server_that_hangs_is_stuck_however_far_it_came(
    judging: Fleet,
    origins: MakeOrigin,
    monkeypatch: pytest.MonkeyPatch,
    parts: tuple[bytes, ...],
    sent: tuple[bytes, ...],
    rest: bytes,
) -> None:
    stuck_soon(monkeypatch)
    monkeypatch.setattr(pace, "_STUCK_TIMES", 1.0)
    go_on = asyncio.Event()
    servers = sick, well = await origins(begins(*sent, go_on=go_on, rest=rest)), await origins()
    (proxy,) = await judging(1, *servers, max_inflight="1", eject_time="1m", eject_slow="false")
    hanging = [await ask(proxy, parts, servers)]
    while not sick.requests:
        await hanging[-1].reply()
        hanging.append(await ask(proxy, parts, servers))

    async def the_other_answers() -> bool:
        assert (await proxy.get("/p")).status == 200
        return serving(proxy) == {well.member}

    await until(the_other_answers, bool, what="it is left out")
    assert set(proxy.metrics.health.ejections) == {(sick.member, "stuck")}
    assert len(sick.requests) == 1
    go_on.set()
    assert (await hanging[-1].reply()).status == 200


@pytest.mark.parametrize("head", [STREAM, STREAM.replace(b"text/event-stream", b"application/json")])
async def test_a_subscription_in_which_nothing_is_told_is_asked_after_by_nobody(
    proxies: MakeProxy, origins: MakeOrigin, monkeypatch: pytest.MonkeyPatch, head: bytes
) -> None:
    """An EventSource of a browser, or a watch, beside a stream that was asked for by POST."""
    stuck_soon(monkeypatch)
    go_on = asyncio.Event()
    quiet, hung = [await origins(begins(head, go_on=go_on, rest=TOKEN + END)) for _ in range(2)]
    proxy = await proxies()
    proxy.route("/q", quiet)
    proxy.route("/p", hung)
    recorder = proxy.server.context.witness = Recorder()
    subscribed = await ask(proxy, (b"GET /q HTTP/1.1\r\nHost: h\r\n\r\n",), (quiet,))
    assert (await subscribed.head())[0].split()[1] == "200"
    asked = await ask(proxy, TOGETHER, (hung,))
    await eventually(lambda: recorder.left.count(hung.member) >= 3)
    assert quiet.member not in recorder.left
    go_on.set()
    assert (await asked.reply()).status == 200


@pytest.mark.parametrize(("parts", "sent"), [(APART, ()), (TOGETHER, (STREAM,)), (TOGETHER, (STREAM, TOKEN))])
async def test_a_client_that_gives_up_on_a_server_that_hangs_is_counted(
    proxies: MakeProxy,
    origins: MakeOrigin,
    monkeypatch: pytest.MonkeyPatch,
    parts: tuple[bytes, ...],
    sent: tuple[bytes, ...],
) -> None:
    stuck_soon(monkeypatch)
    hung, proxy = await origins(begins(*sent, go_on=asyncio.Event(), rest=b"")), await proxies()
    proxy.route("/p", hung)
    recorder = proxy.server.context.witness = Recorder()
    recorder.blames = True
    wire = await ask(proxy, parts, (hung,))
    await eventually(lambda: len(recorder.left) > 0, what="nobody asks after it")
    wire.reset()
    await eventually(
        lambda: [each["reason"] for each in proxy.logged()] == ["client_gave_up"], what="it is not counted"
    )
    assert (proxy.logged()[-1]["first_byte"] is None) == (TOKEN not in sent)


async def test_the_first_byte_of_a_stream_is_that_of_its_body(proxies: MakeProxy, origins: MakeOrigin) -> None:
    go_on = asyncio.Event()
    server, proxy = await origins(begins(STREAM, go_on=go_on, rest=TOKEN + END)), await proxies()
    proxy.route("/p", server)
    recorder = proxy.server.context.witness = Recorder()
    wire = await ask(proxy, TOGETHER, (server,))
    await wire.head()
    await asyncio.sleep(0.1)  # what is measured is time
    go_on.set()
    await wire.reader.readuntil(END)
    await eventually(lambda: len(recorder.took) == 1)
    assert recorder.took[0] >= 0.1
    assert proxy.logged()[-1]["first_byte"] >= 0.1


async def test_the_first_token_may_take_as_long_as_a_first_byte_though_the_head_has_come(
    proxies: MakeProxy, origins: MakeOrigin, monkeypatch: pytest.MonkeyPatch
) -> None:
    stuck_soon(monkeypatch)
    go_on = asyncio.Event()
    server, proxy = await origins(begins(STREAM, go_on=go_on, rest=TOKEN + END)), await proxies()
    proxy.route("/p", server, idle_timeout="0.05s", first_byte_timeout="1h")
    recorder = proxy.server.context.witness = Recorder()
    wire = await ask(proxy, TOGETHER, (server,))
    await eventually(lambda: len(recorder.left) > 3)  # each a tenth of a second after the one before
    go_on.set()
    assert (await wire.reply()).body == b"data: 1\n\n"
