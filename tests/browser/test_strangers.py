"""What strangers write, and much of it, with two real instances: by hand into Redis, by a GPU, by a client."""

import re
import time
from typing import Any

from slb.control import keys
from tests.browser.dashboard import OpenDashboard
from tests.browser.hostile import HOSTILE, VIEWS, stays_harmless
from tests.browser.real_fleet import MODEL, ROUTE, RealFleet
from tests.support.waiting import until_found

ROUTES, EACH = 50, 20
IMAGE = HOSTILE[0]


async def test_a_thousand_upstreams_are_on_one_page(fleet: RealFleet, dashboard: OpenDashboard) -> None:
    await fleet.start()
    await fleet.flow()
    for route in range(ROUTES):
        members = [f"10.1.{route}.{number + 1}:8000" for number in range(EACH)]
        fleet.valkey.admin.sadd(keys.route_key(f"/models/m{route:02}"), *members)
    page = await dashboard(fleet.api)
    await page.show()
    await page.until(".route h3", f"/models/m{ROUTES - 1}")
    cells = page.page.locator(".cell")
    await page.page.wait_for_function(
        "most => document.querySelectorAll('.cell').length === most", arg=ROUTES * EACH + len(fleet.upstreams)
    )
    await page.until(".cell .who", fleet.upstreams[0])
    assert await cells.filter(has_text="10.1.49.20:8000").count() == 1
    await page.show("upstreams")
    assert await page.page.locator("#upstreams tbody tr").count() == 200
    await page.page.get_by_placeholder("Filter").fill("10.1.49.")
    await page.until(f"#upstreams tbody tr:nth-child({EACH}):last-child")
    await page.page.get_by_placeholder("Filter").fill("")
    await page.click("Show 802 more")
    await page.until(f"#upstreams tbody tr:nth-child({ROUTES * EACH + 2})")
    fleet.valkey.admin.delete(*(keys.route_key(f"/models/m{route:02}") for route in range(ROUTES)))
    await page.until(f"#upstreams tbody tr:nth-child({len(fleet.upstreams)}):last-child")


async def test_what_strangers_write_is_text(fleet: RealFleet, dashboard: OpenDashboard) -> None:
    await fleet.start()
    await fleet.flow()
    await fleet.ask("PUT", f"/admin/model-configs/{MODEL}", {"max_retries": 0})
    gpu = await fleet.gpu()
    gpu.answers = [(500, {"error": text}) for text in HOSTILE]
    submitted = [{"model": MODEL, "payload": text, "job_id": f"job-{at}"} for at, text in enumerate(HOSTILE)]
    await fleet.ask("POST", "/queue/submit-many", submitted)
    await _wait_for_quota(fleet)
    _write(fleet)
    page = await dashboard(fleet.api)
    await page.show("upstreams")
    await page.until("#upstreams tbody tr", "10.2.0.1:80")
    await page.show("route", ROUTE)
    await page.until("#view", "onerror")
    await page.show("jobs")
    await page.until(f"#dead tbody tr:nth-child({len(HOSTILE)})")
    await page.show("quota")
    await page.until("#quota tbody tr", "onerror")
    await page.show("changes")
    await page.until(".log li", "onerror")
    await page.show("instances")
    await page.until("#instances tbody tr", "onerror")
    for view, argument in [*((each, "") for each in VIEWS), ("route", ROUTE), ("route", f"/{IMAGE}")]:
        await stays_harmless(page, view, argument)


async def test_what_a_client_sends_is_found_again_as_text(fleet: RealFleet, dashboard: OpenDashboard) -> None:
    await fleet.start(upstreams=1)
    sent = re.sub(r"[^ -~]", "", IMAGE)
    url, headers = f"{fleet.instances[0].url}{ROUTE}/{IMAGE}?{IMAGE}", {"X-Request-Id": sent, "User-Agent": sent}
    async with fleet.slb.session.get(url, headers=headers) as reply:
        request_id = reply.headers["X-Request-Id"]
    await until_found(lambda: fleet.explains(request_id), what=request_id)
    page = await dashboard(fleet.api)
    await page.show("explain")
    await page.page.get_by_label("Request id").fill(request_id)
    await page.click("Explain", within=".ask")
    await page.until(".found", ROUTE)
    await stays_harmless(page, "explain", request_id)


async def _wait_for_quota(fleet: RealFleet) -> None:
    """Callers of the quota router, whose keys are shown while they wait; the first takes all tokens there are."""
    await fleet.ask("PUT", "/models/gpt", {"max_tokens_per_minute": 6000, "max_concurrent_requests": 100})
    for text in ("first", *HOSTILE):
        if key := re.sub(r"[\x00-\x1f\x7f]", "", text)[:200]:
            await fleet.ask("POST", "/schedule", {"estimated_tokens": 1000, "idempotency_key": key})


def _write(fleet: RealFleet) -> None:
    """As a program does that may write into the same Redis."""
    redis: Any = fleet.valkey.admin
    now = time.time()
    for number, text in enumerate(HOSTILE):
        member = f"10.2.0.{number + 1}:80"
        redis.sadd(keys.route_key(ROUTE), member, text)
        redis.sadd(keys.route_key(f"/{text}"), member, text)
        redis.hset(keys.upstream_key(member), mapping={"zone": text, "node": text, text: text})
        redis.hset(keys.settings_key(ROUTE), text, text)
        redis.hset(keys.settings_key(f"/{text}"), mapping={"policy": text, "retries": text})
        redis.hset(keys.JOB_MODELS, text, "{}")
        told = dict.fromkeys(("instance", "name", "what", "subject", "detail", "by"), text[:200])
        redis.xadd(keys.FLEET_CHANGES, {"time": str(now), **told})
        instance = f"{number:032}"
        redis.hset(keys.instance_key(instance), mapping=dict.fromkeys(("name", "host", "api", "roles"), text))
        redis.zadd(keys.INSTANCES, {instance: (now + 3600) * 1000, text: (now + 3600) * 1000})
