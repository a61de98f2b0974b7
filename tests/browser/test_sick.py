"""Who is in trouble: first in each list, with the reason in words, and with what takes it out."""

import asyncio
import re
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tests.browser.dashboard import Dashboard, OpenDashboard
from tests.browser.hostile import TOO_WIDE
from tests.browser.made_fleet import MadeFleet
from tests.browser.real_fleet import ROUTE, RealFleet
from tests.browser.stand_in import StandIn, StartStandIn
from tests.support.waiting import until

PHONE = {"width": 390, "height": 844}
_FULL = b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: 30\r\nContent-Length: 0\r\n\r\n"
_IN_WINDOW = """each => { const at = each.getBoundingClientRect();
    return at.width > 0 && at.left >= 0 && at.right <= innerWidth && at.top >= 0 && at.bottom <= innerHeight; }"""


def fleet_of(*members: str) -> tuple[MadeFleet, dict[str, Any]]:
    """A fleet with one route that has these upstreams, all of them well; and these."""
    made = MadeFleet(routes=1, upstreams=1)
    (route,), (template,) = made.state["routes"].values(), made.state["upstreams"].values()
    route["members"] = sorted(members)
    made.state["upstreams"] = {each: {**template, "node": ""} for each in sorted(members, reverse=True)}
    made.state["alerts"] = {}
    return made, made.state["upstreams"]


async def first_column(page: Dashboard, table: str) -> list[str]:
    return [text.split()[0] for text in await page.texts(f"{table} tbody td:first-child")]


async def test_the_sick_come_first_and_addresses_are_sorted_as_numbers(
    stand_in: StartStandIn, dashboard: OpenDashboard
) -> None:
    well = ["10.0.0.2:80", "10.0.0.9:80", "10.0.0.10:80", "https://gpu-2:443", "https://gpu-10:443"]
    sick = {
        "10.0.0.40:80": "down",
        "10.0.0.30:80": "ejected",
        "10.0.0.31:80": "stuck",
        "10.0.0.20:80": "failing",
        "10.0.0.11:80": "busy",
    }
    made, upstreams = fleet_of(*well, *sick)
    for member, health in sick.items():
        since = time.time() - 90 if health in ("down", "ejected") else None
        upstreams[member].update(health=health, why=f"reason of {health}", since=since)
    page = await dashboard(await stand_in(StandIn(made, cadence=None)))
    wanted = [*sick, *well]
    await page.show("upstreams")
    assert await first_column(page, "#upstreams") == wanted
    for number, (member, health) in enumerate(sick.items()):
        row = page.page.locator("#upstreams tbody tr").nth(number)
        assert re.search(rf"{health}\s+reason of {health}", await row.inner_text()), member
        edge = await row.locator("td").first.evaluate("each => getComputedStyle(each).boxShadow")
        assert "inset" in edge
    first = await page.page.locator("#upstreams tbody tr").first.inner_text()
    assert re.search(r"since \d\d:\d\d:\d\d, 1 min", first)
    await page.show("route", "/models/flux")
    assert await first_column(page, "#members") == wanted
    await page.show("overview")
    await page.until(".route .sick li", "reason of down")
    cells = [text.split()[-1] for text in await page.texts(".cell .who")]
    assert cells == [each.removeprefix("https://") for each in wanted]
    told = await page.texts(".route .sick li")
    assert [re.search(r"10[.\d:]+", text)[0] for text in told[:3]] == list(sick)[:3]  # type: ignore[index]
    assert told[3:] == ["and 2 more"]


async def test_one_that_serves_is_in_trouble_where_an_alert_names_it(
    stand_in: StartStandIn, dashboard: OpenDashboard
) -> None:
    made, _ = fleet_of("10.0.0.1:80", "10.0.0.2:80")
    text = "/models/flux: 40 % of requests of the last minute failed (500)"
    accused = {
        "level": "warning",
        "text": text,
        "since": time.time(),
        "do": "",
        "route": "/models/flux",
        "culprits": [],
    }
    made.state["alerts"]["errors:/models/flux"] = {**accused, "upstream": "10.0.0.2:80"}
    served = StandIn(made, cadence=None)
    page = await dashboard(await stand_in(served))
    await page.show("upstreams")
    await page.until("#upstreams tbody tr:first-child", re.compile(r"10\.0\.0\.2:80.*40 % of requests", re.DOTALL))
    served.send({"alerts": {"errors:/models/flux": None}})
    await page.until("#upstreams", "40 %", gone=True)
    await page.until("#upstreams tbody tr:first-child", "10.0.0.1:80")


async def test_each_culprit_of_an_alert_has_its_reason_its_time_and_its_button(
    stand_in: StartStandIn, dashboard: OpenDashboard
) -> None:
    made, since = fleet_of("10.0.0.1:80", "10.0.0.2:80"), time.time()
    blamed = [
        {"upstream": "10.0.0.1:80", "why": "it hangs", "since": since - 600, "failed": 3},
        {"upstream": "10.0.0.2:80", "why": "it refuses connections", "since": since - 60, "failed": 0},
    ]
    alert = {"level": "error", "text": "two are out", "since": since - 600, "do": "", "route": "/models/flux"}
    made[0].state["alerts"] = {"ejected:/models/flux": {**alert, "culprits": blamed}}
    page = await dashboard(await stand_in(StandIn(made[0], cadence=None)))
    await page.show("overview")
    at = ".alerts .sick li"
    await page.until(
        f"{at}:nth-child(1)", re.compile(r"10\.0\.0\.1:80.*it hangs, since.*10 min.*, 3 requests failed.*Drain")
    )
    await page.until(
        f"{at}:nth-child(2)", re.compile(r"10\.0\.0\.2:80.*it refuses connections, since.*1 min.*Drain")
    )


async def test_the_route_and_the_instance_in_trouble_come_first(
    stand_in: StartStandIn, dashboard: OpenDashboard
) -> None:
    made = MadeFleet(routes=3, upstreams=3, instances=3)
    made.state["alerts"] = {}
    served = StandIn(made, cadence=None)
    page = await dashboard(await stand_in(served))
    await page.show()
    await page.until(".route:first-child h3", "/models/flux")
    text = "edge-2 alone fails with all upstreams of /models/whisper: look for the cause there"
    about = {"route": "/models/whisper", "instance": "i2"}
    isolated = {
        "level": "warning",
        "text": text,
        "since": time.time(),
        "do": "slb instances",
        "culprits": [],
        **about,
    }
    served.send({"alerts": {"isolated:/models/whisper|i2": isolated}})
    await page.until(".route:first-child h3", "/models/whisper")
    await page.until(".route:first-child .told.is-warning", re.compile("look for the cause there, since"))
    await page.until(".route.is-warning:first-child")
    await page.show("instances")
    assert (await first_column(page, "#instances"))[0] == "└" or "edge-2" in (await page.texts("#instances td"))[0]
    await page.until("#instances tbody tr:first-child .told", re.compile("edge-2 alone fails"))
    away = {**made.state["instances"]["i1"], "redis_up": False, "staleness": 70.0}
    served.send({"instances": {"i1": away}})
    await page.until("#instances tbody tr:first-child .told", re.compile("it has no Redis, since.* 1 min"))


async def test_names_stand_beside_addresses(stand_in: StartStandIn, dashboard: OpenDashboard) -> None:
    made = MadeFleet(routes=2, upstreams=8)
    made.state["routes"]["/models/flux"]["policy"] = "consistent_hash"
    made.state["rings"] = {"/models/flux": {"shares": [["10.1.0.11:8000", 1.0]]}}
    page = await dashboard(await stand_in(StandIn(made, cadence=None)))
    named = re.compile(r"10\.1\.0\.11:8000\s*gpu-1")
    await page.show("upstreams")
    await page.until("#upstreams td:first-child", named)
    await page.show("route", "/models/flux")
    for place in ("#members td:first-child", "#held td:first-child", ".ring li", ".verdicts li", "dd"):
        await page.until(place, named)
    await page.show("overview")
    await page.until(".cell", named)


async def test_a_phone_shows_the_culprit_since_when_and_how_to_drain_it(
    fleet: RealFleet, dashboard: OpenDashboard
) -> None:
    with socket.socket() as closed:  # bound, so that nobody else listens there
        closed.bind(("127.0.0.1", 0))
        culprit = f"127.0.0.1:{closed.getsockname()[1]}"
        await fleet.start()
        await fleet.ask("POST", "/register", {"path": ROUTE, "target": culprit, "slots": 4, "node": "gpu-13"})
        checks = {"health_path": "/healthz", "health_interval": "1s", "health_fall": 1}
        await fleet.ask("PATCH", f"/routes{ROUTE}", checks)
        page = await dashboard(fleet.api, width=PHONE["width"])
        await page.page.set_viewport_size(PHONE)
        await page.show()
        alert = f".alert:has-text('{culprit} on gpu-13')"
        await page.until(alert, re.compile(r"down.*since \d\d:\d\d:\d\d", re.DOTALL))
        assert not (found := await page.page.evaluate(TOO_WIDE)), found
        drain = page.page.locator(alert).get_by_role("button", name=f"Drain {culprit}")
        for each in (page.page.locator(f"{alert} .alert-text"), page.page.locator(f"{alert} .since"), drain):
            assert await each.evaluate(_IN_WINDOW), await each.inner_text()
        await page.show("upstreams")
        row = page.page.locator("#upstreams tbody tr").first
        assert re.search(rf"{culprit}\s+gpu-13.*down.*since \d\d:\d\d:\d\d", await row.inner_text(), re.DOTALL)
        assert not (found := await page.page.evaluate(TOO_WIDE)), found
        button = row.get_by_role("button", name=f"Drain {culprit}")
        for each in (row.locator(".name").first, row.locator(".since"), button):
            assert await each.evaluate(_IN_WINDOW), await each.inner_text()
        await button.click()
        await page.confirm("Drain")
        await page.toast(f"{culprit} drains")


async def test_an_upstream_that_is_full_is_busy_and_comes_first(fleet: RealFleet, dashboard: OpenDashboard) -> None:
    async with answering(_FULL) as full:
        await fleet.start()
        await fleet.ask("POST", "/register", {"path": ROUTE, "target": full, "slots": 4})
        await fleet.flow()
        page = await dashboard(fleet.api)
        await page.show("upstreams")
        said = re.compile(rf"{full}.*busy\s*it says that it is full", re.DOTALL)
        await page.until("#upstreams tbody tr:first-child", said)


async def test_a_drain_is_asked_for_with_what_the_fleet_has_in_flight(
    fleet: RealFleet, dashboard: OpenDashboard
) -> None:
    async with answering(b"") as busy:
        await fleet.start()
        await fleet.ask("POST", "/register", {"path": "/only", "target": busy})
        page = await dashboard(fleet.api)
        await page.show("upstreams")
        await page.until("#upstreams tbody tr", busy)
        url = f"{fleet.instances[1].url}/only/x"
        requests = [asyncio.create_task(fleet.slb.session.get(url)) for _ in range(3)]
        await until(lambda: fleet.ask("GET", f"/fleet/upstreams/{busy}"), lambda found: found["inflight"] == 3)
        await page.click(f"Drain {busy}")
        await page.until("dialog .load", "3 in flight in the fleet (3 at edge-2)")
        left = "/only has no other upstream that takes requests: it would answer 503 (no_upstream)"
        await page.until("dialog li.bad", left)
        for each in requests:
            each.cancel()
        await asyncio.gather(*requests, return_exceptions=True)


async def test_what_is_down_besides_is_no_other_upstream(stand_in: StartStandIn, dashboard: OpenDashboard) -> None:
    made, _ = fleet_of("10.0.0.1:80", "10.0.0.2:80")
    page = await dashboard(await stand_in(StandIn(made, cadence=None)))

    async def answer(route: Any) -> None:
        await route.fulfill(json={"last_of": [{"path": "/models/flux", "others": 1}]})

    await page.page.route(re.compile(r":\d+/upstreams/10\.0\.0\.1"), answer)
    await page.page.route("**/fleet/upstreams/*", lambda route: route.abort())
    await page.show("upstreams")
    await page.click("Drain 10.0.0.1:80")
    await page.until("dialog .load", "is not known: no answer")
    await page.page.unroute("**/fleet/upstreams/*")
    await page.page.keyboard.press("Escape")
    await page.click("Drain 10.0.0.1:80")
    await page.until("dialog .load", "5 in flight in the fleet (5 at edge-1)")
    await page.until("dialog li.bad", "no other upstream that is up: 1 is down, or ejected and not back")


@asynccontextmanager
async def answering(answer: bytes) -> AsyncIterator[str]:
    """An upstream that gives all requests this answer, or, where it is empty, none; its address."""
    connected: set[asyncio.StreamWriter] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connected.add(writer)
        while await reader.readline():
            while (await reader.readline()).strip():
                pass
            writer.write(answer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield "{}:{}".format(*server.sockets[0].getsockname())
    finally:
        server.close()
        for writer in connected:
            writer.close()
