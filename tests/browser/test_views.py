"""Every view, of real instances under traffic."""

import re

from tests.browser.dashboard import OpenDashboard
from tests.browser.real_fleet import MODEL, ROUTE, RealFleet
from tests.support.waiting import until_found


async def test_the_overview_shows_the_fleet_as_it_is(fleet: RealFleet, dashboard: OpenDashboard) -> None:
    await fleet.start()
    await fleet.flow()
    page = await dashboard(fleet.api)
    await page.show()
    await page.until(".route h3", ROUTE)
    await page.until(".cell .who", fleet.upstreams[0])
    await page.until(".route .badge.is-queue", re.compile(r"requests? waiting"))
    await page.until(".route .figures", re.compile(r"8 of 8|[67] of 8"))
    await page.until(".tile:has-text('Requests per second') strong", re.compile(r"[1-9]"))
    await page.until(".chart canvas")


async def test_two_clicks_answer_who_is_slow_who_holds_slots_and_why(
    fleet: RealFleet, dashboard: OpenDashboard
) -> None:
    await fleet.start()
    await fleet.flow()
    page = await dashboard(fleet.api)
    await page.show("upstreams")
    await page.until("#upstreams tbody tr td", fleet.upstreams[0])
    await page.click("Latency")
    await page.until("#upstreams th[aria-sort=descending]", "Latency")
    await page.until("#upstreams td", re.compile(r"\d+ % full|none is left"))
    await page.show("route", ROUTE)
    await page.until("#settings tbody tr:has-text('max_inflight')", "set here")
    await page.until("#held th", "edge-1")
    await page.until("#held th", "edge-2")
    await page.until(".card:has(h2:text('Last decision'))", re.compile("chosen|full|Redis"))
    await page.until("#queue tbody")


async def test_instances_and_changes_are_shown(fleet: RealFleet, dashboard: OpenDashboard) -> None:
    await fleet.start()
    await fleet.flow()
    page = await dashboard(fleet.api)
    await page.show("instances")
    for name in ("edge-1", "edge-2"):
        await page.until("#instances tbody tr", name)
    await page.until("#instances .badge", "sync")
    await page.show("changes")
    await page.until(".log li", re.compile(f"registered.*{re.escape(fleet.upstreams[0])}", re.DOTALL))
    await page.until(".log li", re.compile("settings changed.*edge-1", re.DOTALL))


async def test_a_request_is_explained_by_its_id(fleet: RealFleet, dashboard: OpenDashboard) -> None:
    await fleet.start()
    await fleet.flow()
    page = await dashboard(fleet.api)
    await page.show("explain")
    request_id = fleet.request_id
    await until_found(lambda: fleet.explains(request_id), what=request_id)
    await page.page.get_by_label("Request id").fill(request_id)
    await page.click("Explain", within=".ask")
    await page.until(".found", ROUTE)
    await page.until(".found", re.compile("|".join(map(re.escape, fleet.upstreams))))
    await page.page.get_by_label("Request id").fill("nobody-has-this")
    await page.click("Explain", within=".ask")
    await page.until(".none", "unknown_request")


async def test_jobs_of_all_models_are_shown_with_what_they_failed_by(
    fleet: RealFleet, dashboard: OpenDashboard
) -> None:
    await fleet.start(upstreams=0)
    await fleet.ask("PUT", f"/admin/model-configs/{MODEL}", {"max_retries": 0})
    gpu = await fleet.gpu()
    gpu.answers = [(500, {"error": "out of memory"})] * 2
    for number in range(3):
        await fleet.ask("POST", "/queue/submit", {"model": MODEL, "payload": 1, "job_id": f"order-{number}"})
    page = await dashboard(fleet.api)
    await page.show("jobs")
    await page.until("#models tbody tr", MODEL)
    await page.until("#failures tbody tr", "500")
    await page.click("Show", within="#failures")
    await page.until("#dead tbody tr", "order-0")
    later = {"max_retries": 1, "retry_backoff": "10m", "longest_backoff": "10m"}
    await fleet.ask("PATCH", f"/admin/model-configs/{MODEL}", later)
    gpu.answers = [(500, {"error": "out of space"})]
    await fleet.ask("POST", "/queue/submit", {"model": MODEL, "payload": 1, "job_id": "order-3"})
    await page.until("#failures tbody tr", re.compile("retrying.*out of space", re.DOTALL))


async def test_quota_is_shown(fleet: RealFleet, dashboard: OpenDashboard) -> None:
    await fleet.start(upstreams=0)
    limits = {"max_tokens_per_minute": 6000, "max_concurrent_requests": 3}
    await fleet.ask("PUT", "/models/gpt-large", limits)
    page = await dashboard(fleet.api)
    await page.show("quota")
    await page.until("#quota tbody tr", re.compile(r"gpt-large.*0 of 3", re.DOTALL))
    for key in ("one", "order-17"):  # the first takes all tokens there are
        await fleet.ask("POST", "/schedule", {"estimated_tokens": 1000, "idempotency_key": key})
    await page.until("#quota tbody tr", re.compile(r"1 of 3.*order-17: 1000 tokens, in \d+ s", re.DOTALL))
    await page.click("Pause")
    await page.confirm("Pause")
    await page.until("#quota .badge", "paused")
