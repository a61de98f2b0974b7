"""What an operator does from the page: asked once more, done by the API, taken back."""

import re
from typing import Any

from tests.browser.dashboard import OpenDashboard
from tests.browser.real_fleet import MODEL, ROUTE, RealFleet
from tests.support.waiting import until


async def attribute(fleet: RealFleet, name: str, wanted: object) -> None:
    """Wait until both instances have it of the first upstream."""
    for at in (0, 1):
        await until(
            lambda at=at: fleet.ask("GET", f"/upstreams/{fleet.upstreams[0]}", at=at),  # type: ignore[misc]
            lambda shown: shown[name] == wanted,
        )


async def test_a_drain_says_what_is_left_and_can_be_undone(fleet: RealFleet, dashboard: OpenDashboard) -> None:
    await fleet.start()
    page = await dashboard(fleet.api)
    await page.show("upstreams")
    await page.click(f"Drain {fleet.upstreams[0]}")
    await page.until("dialog", f"{ROUTE}: 1 upstream with 4 slots for 0 in flight now")
    await page.confirm("Drain")
    await page.toast(f"{fleet.upstreams[0]} drains")
    await attribute(fleet, "drain", True)
    await page.until("#upstreams .state", "draining")
    await page.undo()
    await attribute(fleet, "drain", False)
    await page.until("#upstreams .state", "draining", gone=True)


async def test_a_weight_is_set_and_undone(fleet: RealFleet, dashboard: OpenDashboard) -> None:
    await fleet.start()
    page = await dashboard(fleet.api)
    await page.show("upstreams")
    await page.click(f"Set the weight of {fleet.upstreams[0]}")
    await page.confirm("Set", weight="5000")
    await page.until("dialog .fault", "1000")
    await page.confirm("Set", weight="7")
    await attribute(fleet, "weight", 7)
    await page.undo()
    await attribute(fleet, "weight", 1)


async def test_an_upstream_is_registered_and_deregistered(fleet: RealFleet, dashboard: OpenDashboard) -> None:
    await fleet.start(upstreams=1)
    page = await dashboard(fleet.api)
    await page.show("route", ROUTE)
    await page.click("Register")
    await page.confirm("Register", target="not an address")
    await page.until("dialog .fault", "target")
    await page.confirm("Register", target="10.9.9.9:80", slots="3")
    await page.until("#members tbody tr", "10.9.9.9:80")
    await page.undo()
    await page.until("#members tbody tr", "10.9.9.9:80", gone=True)
    await page.until("#members tbody tr", fleet.upstreams[0])
    await page.click("Deregister", within=f"#members tr:has-text('{fleet.upstreams[0]}')")
    await page.confirm("Deregister")
    await page.until("#members tbody tr", fleet.upstreams[0], gone=True)
    await page.undo()
    await page.until("#members tbody tr", fleet.upstreams[0])
    await attribute(fleet, "slots", 4)


async def test_a_setting_is_refused_in_the_words_of_the_api_set_unset_and_undone(
    fleet: RealFleet, dashboard: OpenDashboard
) -> None:
    await fleet.start()
    page = await dashboard(fleet.api)
    await page.show("route", ROUTE)
    row = "#settings tbody tr:has(code:text-is('retries'))"
    await page.until(row, "built in")
    await page.click("Change retries")
    await page.confirm("Set", value="many")
    await page.until("dialog .fault", re.compile("retries = 'many'.*integer"))
    await page.confirm("Set", value="3")
    await page.until(row, re.compile("set here.*3", re.DOTALL))
    await page.undo()
    await page.until(row, "built in")
    await page.click("Change queue_timeout")
    await page.confirm("Set", value="")
    await page.until("#settings tbody tr:has(code:text-is('queue_timeout'))", "built in")


async def test_a_model_is_paused_and_goes_on(fleet: RealFleet, dashboard: OpenDashboard) -> None:
    await fleet.start(upstreams=0)
    await fleet.gpu()
    await submit(fleet, "a")
    page = await dashboard(fleet.api)
    await page.show("jobs")
    await page.click(f"Pause {MODEL}")
    await page.confirm("Pause")
    await page.until("#models .badge", "paused")
    await page.undo()
    await page.until("#models .badge", "paused", gone=True)


async def test_dead_jobs_begin_again_one_by_one_or_all(fleet: RealFleet, dashboard: OpenDashboard) -> None:
    await fleet.start(upstreams=0)
    await fleet.ask("PUT", f"/admin/model-configs/{MODEL}", {"max_retries": 0})
    gpu = await fleet.gpu()
    gpu.answers = [(500, {"error": "out of memory"})] * 3
    for number in range(3):
        await submit(fleet, f"order-{number}")
    await until(lambda: fleet.ask("GET", "/admin/dlq"), lambda found: len(found["jobs"]) == 3)
    page = await dashboard(fleet.api)
    await page.show("jobs")
    await page.click("Retry order-1")
    await page.confirm("Retry")
    await page.toast("order-1 begins again")
    await page.until("#dead tbody tr", "order-1", gone=True)
    await page.click("Remove order-2")
    await page.confirm("Remove")
    await page.toast("order-2 is removed")
    await page.click("Retry all")
    await page.confirm("Retry all")
    await page.toast("1 job begins again")
    await until(lambda: ended(fleet), lambda found: found == 2)


async def submit(fleet: RealFleet, id_: str) -> None:
    await fleet.ask("POST", "/queue/submit", {"model": MODEL, "payload": 1, "job_id": id_})


async def ended(fleet: RealFleet) -> int:
    """How many jobs are completed."""
    jobs: Any = await fleet.ask("GET", "/queue/jobs?status=completed")
    return len(jobs["jobs"])
