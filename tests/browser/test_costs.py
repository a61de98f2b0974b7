"""What the page costs: the first paint, an event, and one that nobody looks at."""

import asyncio

from tests.browser.dashboard import OpenDashboard
from tests.browser.made_fleet import MadeFleet
from tests.browser.stand_in import StandIn, StartStandIn
from tests.support.waiting import eventually

MOST_AT_FIRST = 100 * 1024
"""Bytes of all that is fetched for the first paint, data apart."""


async def test_the_first_paint_takes_a_hundred_kilobytes_at_most(
    stand_in: StartStandIn, dashboard: OpenDashboard
) -> None:
    page = await dashboard(await stand_in(StandIn(MadeFleet())))
    await page.show()
    sizes = await page.page.evaluate(
        "performance.getEntries().filter(each => each.transferSize && !each.name.includes('/fleet/'))"
        ".map(each => [each.name, each.transferSize])"
    )
    assert len(sizes) > 10
    assert sum(size for _, size in sizes) <= MOST_AT_FIRST, sizes


_COUNT_CHANGES = """() => {
    window.touched = new Set();
    new MutationObserver(found => found.forEach(each => touched.add(each.target)))
        .observe(document.getElementById("view"),
            {subtree: true, childList: true, attributes: true, characterData: true});
}"""


async def test_an_event_changes_only_what_it_is_about(stand_in: StartStandIn, dashboard: OpenDashboard) -> None:
    served = StandIn(MadeFleet(routes=50, upstreams=1000, instances=10), cadence=None)
    page = await dashboard(await stand_in(served))
    await page.show()
    await page.until(".route")
    assert await page.page.locator(".cell").count() == 1000
    await page.page.evaluate(_COUNT_CHANGES)
    member, upstream = next(iter(served.fleet.state["upstreams"].items()))
    served.send({"upstreams": {member: {**upstream, "inflight": 0, "health": "down"}}})
    await page.until(".cell.is-down")
    assert await page.page.evaluate("touched.size") < 60


async def test_long_tables_are_shown_in_parts(stand_in: StartStandIn, dashboard: OpenDashboard) -> None:
    page = await dashboard(await stand_in(StandIn(MadeFleet(routes=50, upstreams=1000))))
    await page.show("upstreams")
    rows = page.page.locator("#upstreams tbody tr")
    assert await rows.count() == 200
    await page.page.get_by_placeholder("Filter").fill("draining")
    await page.until("#upstreams tbody tr:only-child")
    await page.page.get_by_placeholder("Filter").fill("")
    await page.click("Show 800 more")
    await page.until("#upstreams tbody tr:nth-child(1000)")


async def test_rows_keep_their_places_under_the_pointer(stand_in: StartStandIn, dashboard: OpenDashboard) -> None:
    served = StandIn(MadeFleet(), cadence=None)
    page = await dashboard(await stand_in(served))
    await page.show("upstreams")
    await page.click("Latency")
    await page.until("#upstreams th[aria-sort=descending]", "Latency")
    first = page.page.locator("#upstreams tbody tr").first
    before = await first.inner_text()
    await first.hover()
    member, upstream = list(served.fleet.state["upstreams"].items())[-1]
    served.send({"upstreams": {member: {**upstream, "latency": 99.0}}})
    await page.until("#upstreams td", "1 min 39 s")
    assert await first.inner_text() == before
    await page.page.mouse.move(1, 1)
    await page.until("#upstreams tbody tr:first-child", "1 min 39 s")


async def test_a_page_that_nobody_looks_at_closes_its_stream(
    stand_in: StartStandIn, dashboard: OpenDashboard
) -> None:
    served = StandIn(MadeFleet())
    page = await dashboard(await stand_in(served))
    await page.page.clock.install()
    await page.show()
    await eventually(lambda: served.streams == 1)
    await page.page.evaluate(_HIDE, True)
    await page.page.clock.fast_forward(61_000)
    await eventually(lambda: served.streams == 0)
    await page.page.evaluate(_HIDE, False)
    await eventually(lambda: served.streams == 1)
    await page.until("#link", "live")
    await asyncio.sleep(0)


_HIDE = """hidden => {
    Object.defineProperty(document, "hidden", {value: hidden, configurable: true});
    document.dispatchEvent(new Event("visibilitychange"));
}"""
