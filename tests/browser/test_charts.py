"""The last hour of one route and of one upstream, as charts with a legend."""

import re

import pytest

from tests.browser.dashboard import Dashboard, OpenDashboard
from tests.browser.hostile import TOO_WIDE
from tests.browser.made_fleet import MadeFleet
from tests.browser.real_fleet import ROUTE, RealFleet
from tests.browser.stand_in import StandIn, StartStandIn

_ROUTE, _MEMBER = "/models/flux", "10.1.0.11:8000"


def legend(card: str, label: str) -> str:
    return f".hour .card:has(h2:text-is('{card}')) .u-series:has(.u-label:text-is('{label}')) .u-value"


async def points(page: Dashboard) -> list[int]:
    """How wide the line of each chart is, in pixels; the past is to the left."""
    found: list[int] = await page.page.evaluate(
        "[...document.querySelectorAll('.hour .u-over')].map(each => each.clientWidth)"
    )
    return found


async def point_at(page: Dashboard, share: float) -> None:
    """The pointer at this share of the first chart's width."""
    over = page.page.locator(".hour .u-over").first
    await over.hover(position={"x": int((await points(page))[0] * share), "y": 20})


@pytest.mark.parametrize(
    ("view", "argument", "labels"),
    [
        (
            "route",
            _ROUTE,
            ["requests", "failed", "in flight", "waiting", "slots now", "first byte, mean", "p50", "p99"],
        ),
        (
            "upstreams",
            _MEMBER,
            ["requests", "failed", "in flight", "slots now", "first byte, mean", "whole answer, mean"],
        ),
    ],
)
@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
async def test_legends_have_the_values_under_the_cursor_and_else_the_latest(
    view: str,
    argument: str,
    labels: list[str],
    width: int,
    scheme: str,
    stand_in: StartStandIn,
    dashboard: OpenDashboard,
) -> None:
    made = MadeFleet()
    for now in (made.state["routes"][_ROUTE], made.state["upstreams"][_MEMBER]):
        now["error_rate"] = 3.5  # as of late: before events add to what was kept, and after
    page = await dashboard(await stand_in(StandIn(made, cadence=None)), width=width, color_scheme=scheme)
    await page.show(view, argument)
    await page.until(".hour p", "as 2 processes have kept it. No answer came from edge-3.")
    await page.until(".hour canvas")
    shown = await page.texts(".hour .u-label")
    assert [each for each in shown if each != "Time"] == labels
    await page.until(legend("Requests and failures", "failed"), "3.5/s")
    await point_at(page, 0.5)
    await page.until(legend("Requests and failures", "failed"), re.compile("^0/s$"))
    await page.until(legend("Requests and failures", "requests"), "7.0/s")
    await page.until(legend("Latency", "first byte, mean"), "250 ms")
    await page.page.mouse.move(1, 1)
    await page.until(legend("Requests and failures", "Time"), "latest")
    assert not await page.page.evaluate(TOO_WIDE)


async def test_what_happens_while_it_is_open_is_added(stand_in: StartStandIn, dashboard: OpenDashboard) -> None:
    served = StandIn(MadeFleet(), cadence=None)
    page = await dashboard(await stand_in(served))
    await page.show("upstreams", _MEMBER)
    await page.until(".hour canvas")
    for rate in (41.0, 42.0):
        upstream = {**served.fleet.state["upstreams"][_MEMBER], "rate": rate, "error_rate": rate - 1}
        served.send({"upstreams": {_MEMBER: upstream}})
        await page.until(legend("Requests and failures", "requests"), f"{rate:.0f}/s")
        await page.until(legend("Requests and failures", "failed"), f"{rate - 1:.0f}/s")
    asked = [path for _, path in served.asked if path.startswith("/fleet/history/")]
    assert asked == [f"/fleet/history/upstreams/{_MEMBER}"]


async def test_another_route_has_its_own(stand_in: StartStandIn, dashboard: OpenDashboard) -> None:
    served = StandIn(MadeFleet(), cadence=None)
    page = await dashboard(await stand_in(served))
    for path in (_ROUTE, "/models/whisper", _ROUTE):
        await page.show("route", path)
        await page.until(".hour canvas")
    asked = [path.removeprefix("/fleet/history/routes") for _, path in served.asked if "/history/routes/" in path]
    assert asked == [_ROUTE, "/models/whisper", _ROUTE]


async def test_a_name_in_the_list_of_upstreams_leads_to_its_hour(
    stand_in: StartStandIn, dashboard: OpenDashboard
) -> None:
    page = await dashboard(await stand_in(StandIn(MadeFleet())))
    await page.show("upstreams")
    await page.until("#upstreams")
    assert not await page.page.locator(".hour").count()
    await page.page.locator("#upstreams").get_by_role("link", name=_MEMBER).click()
    await page.until(".hour canvas")


async def test_real_traffic_is_in_the_legend(fleet: RealFleet, dashboard: OpenDashboard) -> None:
    await fleet.start()
    await fleet.flow()
    page = await dashboard(fleet.api)
    some, slots = re.compile(r"[1-9].*/s$"), re.compile("^[1-8]")
    for view, argument in (("route", ROUTE), ("upstreams", fleet.upstreams[0])):
        await page.show(view, argument)
        await page.until(legend("Requests and failures", "requests"), some)
        await page.until(legend("Requests and failures", "failed"), re.compile("^0/s$"))
        await page.until(legend("In flight", "in flight"), slots)
        await page.until(legend("Latency", "first byte, mean"), re.compile(r"\d+ ms"))
