"""What breaks while the page is open: Redis, the instance that it follows, its token."""

import asyncio
import contextlib
import os
import re
import signal
from collections.abc import AsyncIterator

from tests.browser.dashboard import OpenDashboard
from tests.browser.made_fleet import MadeFleet
from tests.browser.real_fleet import ROUTE, RealFleet
from tests.browser.stand_in import StandIn, StartStandIn


async def test_redis_killed_is_said_and_is_over_when_it_is_back(fleet: RealFleet, dashboard: OpenDashboard) -> None:
    await fleet.start()
    await fleet.flow()
    page = await dashboard(fleet.api)
    await page.show("instances")
    await page.until("#instances tbody tr", "edge-2")
    fleet.valkey.kill()
    await page.until("#news", "Only what this slb sees is shown")
    await page.until("#instances .badge", "away")
    await page.show("upstreams")
    await page.click(f"Drain {fleet.upstreams[0]}")
    await page.confirm("Drain")
    await page.until("dialog .fault", "redis_down")
    await page.page.keyboard.press("Escape")
    fleet.valkey.start()
    await page.until("#news .alert", gone=True)
    await page.show("instances")
    await page.until("#instances tbody tr", "edge-2")


async def test_behind_one_name_the_page_goes_on_with_another_instance(
    fleet: RealFleet, dashboard: OpenDashboard
) -> None:
    await fleet.start()
    await fleet.flow()
    async with one_name([each.api for each in fleet.instances]) as url:
        page = await dashboard(url)
        await page.show()
        await page.until("#link .self", "edge-1")
        fleet.process(0).kill()
        await page.until("#link .self", "edge-2")
        await page.until("#link .state", "live")
        await page.until(".route h3", ROUTE)


async def test_without_one_the_page_says_where_else_the_fleet_can_be_seen(
    fleet: RealFleet, dashboard: OpenDashboard
) -> None:
    await fleet.start()
    page = await dashboard(fleet.api)
    await page.show("instances")
    await page.until("#instances tbody tr", "edge-2")
    fleet.process(0).kill()
    await page.until("#news .alert", "No connection to")
    page.url = fleet.instances[1].api
    await page.page.locator("#news").get_by_role("link", name="edge-2").click()
    await page.until("#link .self", "edge-2")


async def test_a_token_is_asked_for_and_asked_for_again_once_it_is_revoked(
    fleet: RealFleet, dashboard: OpenDashboard
) -> None:
    secret = fleet.slb.directory / "token"
    secret.write_text("first-secret")
    await fleet.start(upstreams=0, token="first-secret", env={**os.environ, "SLB_API_TOKEN_FILE": str(secret)})
    page = await dashboard(fleet.api)
    await page.page.goto(fleet.api)
    await page.until(".lock", "asks for a token")
    await page.page.get_by_label("Token").fill("wrong")
    await page.click("Show the fleet")
    await page.until(".lock .fault", "token")
    await page.page.get_by_label("Token").fill("first-secret")
    await page.click("Show the fleet")
    await page.until(".route h3", ROUTE)
    kept = await page.page.evaluate(
        "JSON.stringify([localStorage, sessionStorage, document.cookie, location.href])"
    )
    assert "first-secret" not in kept
    secret.write_text("second-secret")
    os.kill(fleet.process(0).pid, signal.SIGHUP)
    await page.until(".lock")
    assert await page.page.locator(".route").count() == 0
    await page.page.get_by_label("Token").fill("second-secret")
    await page.click("Show the fleet")
    await page.until(".route h3", ROUTE)
    await page.click("Forget token")
    await page.until(".lock", "forgotten")


async def test_before_the_last_hour_is_known_the_small_lines_are_empty(
    stand_in: StartStandIn, dashboard: OpenDashboard
) -> None:
    page = await dashboard(await stand_in(StandIn(MadeFleet())))
    await page.page.route("**/fleet/history", lambda route: None)  # it is never answered
    await page.show("overview")
    await page.until(".tile .spark")
    assert await page.page.locator(".spark path").count() == 0


async def test_a_stream_that_falls_silent_is_opened_again(stand_in: StartStandIn, dashboard: OpenDashboard) -> None:
    page = await dashboard(await stand_in(StandIn(MadeFleet(), cadence=None)))
    await page.page.clock.install()
    await page.show()
    await page.until("#link .state", "live")
    async with page.page.expect_request("**/fleet/events"):
        await page.page.clock.run_for(41_000)
    await page.until("#link .state", "live")


async def test_a_table_sorted_by_a_column_that_is_gone_is_still_a_table(
    stand_in: StartStandIn, dashboard: OpenDashboard
) -> None:
    made = MadeFleet(routes=1, upstreams=2)
    (route,) = made.state["routes"].values()
    first, second = route["members"]
    served = StandIn(made, cadence=None)
    page = await dashboard(await stand_in(served))
    await page.show("route", "/models/flux")
    await page.click("edge-1/1", within="#held")
    served.send(
        {"upstreams": {first: {**made.state["upstreams"][first], "held": {"edge-9": 7}}, second: None}},
    )
    await page.until("#held th", "edge-9")


async def test_actions_are_shown_where_the_rights_allow_them(
    stand_in: StartStandIn, dashboard: OpenDashboard
) -> None:
    made = MadeFleet()
    made.state["view"]["self"].update(rights=["read", "register"], prefixes=["/models/flux"], token="ci")
    page = await dashboard(await stand_in(StandIn(made)))
    await page.show("route", "/models/flux")
    await page.until("#link", "ci")
    for allowed in ("Deregister", "Change policy", "Change retries"):
        await page.page.get_by_role("button", name=allowed).first.wait_for()
    assert await page.page.get_by_role("button", name=re.compile("^(Drain|Set the weight)")).count() == 0
    await page.show("route", "/models/embed")
    assert await page.page.get_by_role("button", name=re.compile("Deregister|Drain|Change|Set ")).count() == 0
    await page.show("jobs")
    await page.until(".none", "the right jobs")
    assert await page.page.get_by_role("button", name=re.compile("^(Show$|Retry( |$)|Remove|Pause)")).count() == 0


async def test_the_right_jobs_lists_dead_jobs_and_retries_none(
    stand_in: StartStandIn, dashboard: OpenDashboard
) -> None:
    made = MadeFleet()
    made.state["view"]["self"].update(rights=["read", "jobs"], prefixes=[], token="app")
    page = await dashboard(await stand_in(StandIn(made)))
    await page.show("jobs")
    await page.until("#dead tbody tr")
    assert await page.page.get_by_role("button", name="Show", exact=True).count() > 0
    assert await page.page.get_by_role("button", name=re.compile("^(Retry( |$)|Remove|Pause)")).count() == 0


@contextlib.asynccontextmanager
async def one_name(apis: list[str]) -> AsyncIterator[str]:
    """An address in front of several, as a virtual IP is: each connection goes to the first that takes it."""

    async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for api in apis:
            host, _, port = api.removeprefix("http://").partition(":")
            try:
                there, back = await asyncio.open_connection(host, int(port))
            except OSError:
                continue
            await asyncio.gather(_passed_on(reader, back), _passed_on(there, writer))
            return
        writer.close()

    server = await asyncio.start_server(accepted, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    try:
        yield f"http://{host}:{port}"
    finally:
        server.close()


async def _passed_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    writer.close()
