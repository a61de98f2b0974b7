"""Where the page keeps its token: in its memory, or, where its user ticks that, in the tab."""

import os
import signal

from tests.browser.dashboard import Dashboard, OpenDashboard
from tests.browser.real_fleet import ROUTE, RealFleet

SECRET = "first-secret"
_KEPT = "JSON.stringify([localStorage, document.cookie, location.href, Object.entries(sessionStorage)])"


async def locked(fleet: RealFleet, dashboard: OpenDashboard) -> Dashboard:
    """The page of a fleet that asks for SECRET, which stands in the file `token`."""
    secret = fleet.slb.directory / "token"
    secret.write_text(SECRET)
    await fleet.start(upstreams=0, token=SECRET, env={**os.environ, "SLB_API_TOKEN_FILE": str(secret)})
    page = await dashboard(fleet.api)
    await page.page.goto(fleet.api)
    return page


async def unlock(page: Dashboard, keeps: bool) -> None:
    await page.page.get_by_label("Token").fill(SECRET)
    if keeps:
        await page.page.get_by_label("Keep it for this tab").check()
    await page.click("Show the fleet")
    await page.until(".route h3", ROUTE)


async def test_a_reload_asks_again_unless_the_tab_may_keep_the_token(
    fleet: RealFleet, dashboard: OpenDashboard
) -> None:
    page = await locked(fleet, dashboard)
    await unlock(page, keeps=False)
    assert SECRET not in await page.page.evaluate(_KEPT)
    await page.page.reload()
    await page.until(".lock", "asks for a token")
    assert not await page.page.get_by_label("Keep it for this tab").is_checked()
    await unlock(page, keeps=True)
    assert (await page.page.evaluate(_KEPT)).endswith(f',[["slb-token","{SECRET}"]]]')
    assert (await page.page.evaluate(_KEPT)).count(SECRET) == 1
    await page.page.reload()
    await page.until(".route h3", ROUTE)
    other = await page.page.context.new_page()
    await other.goto(fleet.api)
    await other.wait_for_selector(".lock")


async def test_the_tab_forgets_it_with_forget_token(fleet: RealFleet, dashboard: OpenDashboard) -> None:
    page = await locked(fleet, dashboard)
    await unlock(page, keeps=True)
    await page.click("Forget token")
    await page.until(".lock", "forgotten")
    assert await page.page.evaluate("sessionStorage.length") == 0
    await page.page.reload()
    await page.until(".lock", "asks for a token")


async def test_the_tab_forgets_a_token_that_is_revoked(fleet: RealFleet, dashboard: OpenDashboard) -> None:
    page = await locked(fleet, dashboard)
    await unlock(page, keeps=True)
    (fleet.slb.directory / "token").write_text("second-secret")
    os.kill(fleet.process(0).pid, signal.SIGHUP)
    await page.until(".lock")
    assert await page.page.evaluate("sessionStorage.length") == 0
