"""The page for everybody: what axe finds, narrow or wide, light or dark, by keyboard, and with hostile names."""

import asyncio
import re
from typing import Any

import pytest
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import expect

from tests.browser.dashboard import Dashboard, OpenDashboard
from tests.browser.hostile import HOSTILE, TOO_WIDE, VIEWS, stays_harmless
from tests.browser.made_fleet import MadeFleet
from tests.browser.stand_in import StandIn, StartStandIn

_ROUTE = "/models/flux"
_RULES = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]}


async def violations(page: Dashboard) -> list[Any]:
    found = await Axe().run(page.page, options=_RULES)
    seen = found.response["violations"]
    return [(each["id"], [node["html"][:200] for node in each["nodes"][:3]]) for each in seen]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1280])
async def test_axe_finds_nothing(width: int, scheme: str, stand_in: StartStandIn, dashboard: OpenDashboard) -> None:
    url = await stand_in(StandIn(MadeFleet(routes=3, upstreams=12, instances=3)))
    page = await dashboard(url, width=width, color_scheme=scheme)
    for view, argument in [*((each, "") for each in VIEWS), ("route", _ROUTE), ("route", "/models/llama-70b")]:
        await page.show(view, argument)
        assert await violations(page) == [], view
        assert not (found := await page.page.evaluate(TOO_WIDE)), f"{view}: {found}"
    await page.show("upstreams")
    await page.click(re.compile("^Drain"))
    assert await violations(page) == [], "the dialog"


async def test_the_switch_wins_over_what_the_browser_prefers(
    stand_in: StartStandIn, dashboard: OpenDashboard
) -> None:
    page = await dashboard(await stand_in(StandIn(MadeFleet())), color_scheme="dark")
    await page.show()
    ground = "getComputedStyle(document.documentElement).backgroundColor"
    dark = await page.page.evaluate(ground)
    await page.click("Theme: auto")
    await page.until("#theme button", "Theme: light")
    assert await page.page.evaluate(ground) != dark
    await page.click("Theme: light")
    assert await page.page.evaluate(ground) == dark


async def test_a_small_line_begins_where_its_figures_do(stand_in: StartStandIn, dashboard: OpenDashboard) -> None:
    made = MadeFleet()
    answer = made.history()
    for each in answer["series"].values():
        each["p50"][:360] = [None] * 360  # half an hour
    made.history = lambda: answer  # type: ignore[method-assign]
    page = await dashboard(await stand_in(StandIn(made)))
    await page.show()
    line = page.page.locator(".tile:has-text('median') .spark .line")
    await expect(line).to_have_attribute("d", re.compile(r"M(59|6[01])\."))


async def test_all_of_it_can_be_done_with_the_keyboard(stand_in: StartStandIn, dashboard: OpenDashboard) -> None:
    page = await dashboard(await stand_in(StandIn(MadeFleet())))
    await page.show()
    keyboard = page.page.keyboard
    await page.page.get_by_role("link", name="Upstreams").focus()
    await keyboard.press("Enter")
    await page.until(".view.of-upstreams")
    assert await page.page.evaluate("document.activeElement.id") == "title"
    drain = page.page.get_by_role("button", name="Drain 10.1.0.11:8000")
    await drain.focus()
    await keyboard.press("Enter")
    await page.until("dialog[open]", "Drain 10.1.0.11:8000?")
    await keyboard.press("Escape")
    await page.until("dialog[open]", gone=True)
    assert await drain.evaluate("each => each === document.activeElement")
    await asyncio.sleep(1.2)  # and it stays there when the next second is drawn
    assert await drain.evaluate("each => each === document.activeElement")


async def test_hostile_names_are_texts_and_nothing_else(stand_in: StartStandIn, dashboard: OpenDashboard) -> None:
    made = MadeFleet(routes=1, upstreams=6)
    state = made.state
    (route,) = state["routes"].values()
    template = next(iter(state["upstreams"].values()))
    for name in HOSTILE:
        path = f"/{name}"
        held = {name: 2}
        told = {"health": "ejected", "why": name, "node": name, "zone": name, "ejected_by": [name], "held": held}
        state["upstreams"][name] = {**template, "routes": [path], **told}
        state["routes"][path] = {
            **route,
            "members": [name],
            "faults": [name],
            "names": [name],
            "settings": {name: name},
        }
        blamed = [{"upstream": each, "why": name, "since": 0, "failed": 1} for each in (name, "10.1.0.11:8000")]
        state["alerts"][name] = {"level": "error", "text": name, "since": 0, "route": path, "culprits": blamed}
        state["jobs"][name] = {**state["jobs"]["flux"], "failed_by": {name: 3}}
        state["quota"][name] = state["quota"]["gpt-large"]
        state["queues"][f"{path}|{path}|{name}"] = {
            "pool": path,
            "route": path,
            "priority": name,
            "depth": 2,
            "oldest": 1,
            "eta": 1,
        }
        told = {"time": state["view"]["self"]["now"], "instance": name, "name": name, "by": name}
        state["changes"][name] = {**told, "what": name, "subject": name, "detail": name}
        state["instances"][name] = {
            **state["instances"]["i0"],
            "name": name,
            "host": name,
            "api": name,
            "group": name,
        }
    state["rings"][f"/{HOSTILE[0]}"] = {"shares": [[HOSTILE[0], 1.0]]}
    page = await dashboard(await stand_in(StandIn(made)), width=800)
    for view, argument in [*((each, "") for each in VIEWS), *(("route", f"/{name}") for name in HOSTILE)]:
        await stays_harmless(page, view, argument)
    await page.show("upstreams")
    assert "\\u202e" in await page.page.inner_text("#upstreams")


async def test_names_that_every_object_of_the_language_has_are_names(
    stand_in: StartStandIn, dashboard: OpenDashboard
) -> None:
    made = MadeFleet(routes=1, upstreams=2)
    (route,) = made.state["routes"].values()
    first, second = (made.state["upstreams"][each] for each in route["members"])
    first["held"], second["held"] = {"constructor": 3, "__proto__": 2}, {"edge-1": 1}
    names = ("__proto__", "constructor")
    for name in names:
        made.state["upstreams"][name] = {**first, "routes": [name]}
        made.state["routes"][name] = {**route, "members": [name, *route["members"]]}
        made.state["instances"][name] = {**made.state["instances"]["i0"], "name": name}
    served = StandIn(made, cadence=None)
    page = await dashboard(await stand_in(served))
    for name in names:
        await page.show("route", name)
        await page.until("#held tbody tr", name)
    await page.show("instances")
    for name in names:
        await page.until("#instances tbody tr", name)
    served.send({"instances": dict.fromkeys(names)})
    for name in names:
        await page.until("#instances tbody tr", name, gone=True)
    await page.show("route", "toString")
    await page.until(".none", "There is no route toString")
    await page.page.goto(f"{page.url}/#/constructor")
    await page.until(".view.of-overview")


async def test_the_ages_of_changes_are_renewed_together(stand_in: StartStandIn, dashboard: OpenDashboard) -> None:
    made = MadeFleet()
    now = made.state["view"]["self"]["now"]
    (template, *_) = made.state["changes"].values()
    made.state["changes"] = {
        f"{n}-0": {**template, "time": now - n} for n in (13, 17, 25)
    }  # none is younger than a tick
    page = await dashboard(await stand_in(StandIn(made, cadence=None)))
    await page.page.clock.install(time=now)
    await page.show("changes")
    await page.until(".log li")
    seen = []
    for _ in range(12):
        await page.page.clock.run_for(1000)
        ages = [int(each) for text in await page.texts(".log li") for each in re.findall(r"(\d+) s ago", text)]
        seen.append((ages[1] - ages[0], ages[2] - ages[1]))
    assert len(ages) == 3
    assert set(seen) == {(4, 8)}
