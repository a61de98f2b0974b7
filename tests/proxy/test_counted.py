"""What Prometheus is shown of requests: real ones, by route and by upstream, while both come and go."""

import asyncio

from prometheus_client import generate_latest

from slb.observe.collectors import MetricsCollector
from slb.routing.availability import Availability
from tests.proxy.harness import MakeOrigin, MakeProxy, Origin, Proxy, Request, answer_ok
from tests.support.waiting import eventually

DURATION = "slb_upstream_request_duration_seconds"


def shown(proxy: Proxy, *parts: str) -> dict[str, float]:
    """The samples whose line has all of `parts` in it."""
    lines = generate_latest(MetricsCollector(proxy.metrics)).decode().splitlines()
    found = [
        line.rpartition(" ") for line in lines if not line.startswith("#") and all(each in line for each in parts)
    ]
    return {name: float(value) for name, _, value in found}


def left(proxy: Proxy, path: str) -> None:
    """The route is gone."""
    proxy.mirror.update({path: None}, {})


async def test_every_series_of_a_route_ends_with_it_however_many_others_there_are(
    proxies: MakeProxy, origin: Origin
) -> None:
    proxy = await proxies()
    for path in ("/p", "/quiet", "/quieter"):
        proxy.route(path, origin)
    assert (await proxy.get("/p")).status == 200
    await proxy.at_rest()
    assert shown(proxy, "slb_request_duration_seconds_count", 'route="/p"')
    left(proxy, "/p")
    assert shown(proxy, 'route="/p"') == {}
    proxy.route("/p", origin)
    assert shown(proxy, "slb_route_requests_total", 'route="/p"', 'code="2xx"') == {
        'slb_route_requests_total{code="2xx",route="/p"}': 0
    }


async def test_a_request_that_ends_after_its_route_has_left_is_counted_once_under_no_name(
    proxies: MakeProxy, origins: MakeOrigin
) -> None:
    async def slow(request: Request) -> None:
        await go_on.wait()
        await answer_ok(request)

    go_on = asyncio.Event()
    origin, proxy = await origins(slow), await proxies()
    proxy.route("/p", origin)
    proxy.route("/q", origin)
    running = asyncio.create_task(proxy.get("/p"))
    await eventually(lambda: len(origin.requests) == 1)
    left(proxy, "/p")
    go_on.set()
    assert (await running).status == 200
    await proxy.at_rest()
    assert shown(proxy, 'route="/p"') == {}
    assert shown(proxy, "slb_route_requests_total", 'code="2xx"') == {
        'slb_route_requests_total{code="2xx",route=""}': 1,
        'slb_route_requests_total{code="2xx",route="/q"}': 0,
    }


async def test_panics_end_with_their_route(proxies: MakeProxy, origin: Origin) -> None:
    proxy = await proxies()
    proxy.route("/p", origin, panic_threshold="1", eject_after="1")
    availability = Availability(proxy.mirror, proxy.metrics.health)
    (live,) = proxy.mirror.table.routes["/p"].members
    live.available = False
    availability.refresh([live.member])
    assert set(shown(proxy, "slb_panic", 'route="/p"').values()) == {1}
    left(proxy, "/p")
    assert shown(proxy, "slb_panic", 'route="/p"') == {}


async def test_bodies_are_counted_in_bytes_both_ways_without_heads_and_framing(proxy: Proxy) -> None:
    wire = await proxy.connect()
    for head, body in ((b"Content-Length: 4", b"four"), (b"Transfer-Encoding: chunked", b"3\r\nhey\r\n0\r\n\r\n")):
        await wire.send(b"POST / HTTP/1.1\r\nHost: h\r\n%b\r\n\r\n%b" % (head, body))
        assert (await wire.reply()).body == b"ok"
    await proxy.at_rest()
    assert shown(proxy, "_bytes_total", 'route="/"') == {
        'slb_request_bytes_total{route="/"}': 4 + 3,
        'slb_response_bytes_total{route="/"}': 2 + 2,
    }


async def test_an_upstream_counts_the_time_of_what_it_was_sent_and_not_what_another_took_before(
    proxies: MakeProxy, origins: MakeOrigin
) -> None:
    async def fails(request: Request) -> None:
        proxy.route("/", good, bad, retries="1", policy="round_robin")
        await request.wire.send(b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n")

    bad, good, proxy = await origins(fails), await origins(), await proxies()
    proxy.route("/", bad, retries="1")
    assert (await proxy.get("/")).status == 503  # now there is another
    for _ in range(2):
        assert (await proxy.get("/")).status == 200
    await proxy.at_rest()
    counts = shown(proxy, f"{DURATION}_count")
    assert counts == {
        f'{DURATION}_count{{route="/",upstream="{bad.member}"}}': 1,
        f'{DURATION}_count{{route="/",upstream="{good.member}"}}': 2,
    }
    assert all(0 < seconds < 10 for seconds in shown(proxy, f"{DURATION}_sum").values())


async def test_a_request_that_could_not_be_sent_has_no_time_at_its_upstream(
    proxies: MakeProxy, origins: MakeOrigin
) -> None:
    origin, proxy = await origins(), await proxies()
    proxy.route("/", origin)
    await origin.stop()
    assert (await proxy.get("/")).status == 502
    await proxy.at_rest()
    assert shown(proxy, DURATION) == {}
    assert list(shown(proxy, "slb_requests_total").values()) == [1]
