"""What the page costs: a real instance serves it, a real browser shows it, and all its figures change."""

import time
from statistics import median
from typing import Annotated, Any

from playwright.sync_api import Browser, CDPSession, Page, sync_playwright
from typer import Option

from bench.command import Bench
from bench.figures.view import SETTLE_SECONDS, Size, Watched
from bench.fleet import Fleet
from bench.processes import BenchError
from bench.procstat import ProcessTree
from bench.table import Figure, Outcome, Section
from slb.control import keys
from tools import browsers

GOAL_PAINT_MS, GOAL_KIB, GOAL_SHARE = 300.0, 100.0, 1.0
PAINT = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? NaN"
LOADED = """performance.getEntries().filter(each => each.transferSize && !each.name.includes("/fleet/"))
    .reduce((sum, each) => sum + each.transferSize, 0)"""
NOTE = (
    "The others are made up in one process: every figure of each changes each second, the worst there is.\n"
    "CPU is that of one core: of the instance's process, and of the page's own thread in the browser."
)


def page(
    bench: Bench,
    instances: Annotated[int, Option(min=2, help="The one that serves the page included.")] = 10,
    routes: Annotated[int, Option(min=1)] = 50,
    upstreams: Annotated[int, Option(min=1, help="Of all routes together.")] = 1000,
    seconds: Annotated[float, Option(min=1, help="That the page is looked at, and that none is open.")] = 20.0,
    loads: Annotated[int, Option(min=1, help="How often it is opened with nothing in the browser's cache.")] = 5,
) -> Outcome:
    """The page in a browser: first paint, bytes, the script's time; and what the instance that serves it pays."""
    executable = browsers.installed()
    if executable is None:
        raise BenchError(f"there is none of these browsers: {', '.join(browsers.NAMES)}")
    size, fleet = Size(instances, routes, upstreams), bench.fleet()
    _write(fleet, size)
    (viewer,) = fleet.start_instances(1)
    bench.to("starting the other instances")
    with Watched(fleet.redis.url, size), sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=executable, args=["--no-sandbox"])
        url, used = f"http://127.0.0.1:{viewer.api_port}/", ProcessTree(viewer.running.pid)
        time.sleep(SETTLE_SECONDS)
        bench.to(f"nobody looks, {seconds:g} s")
        closed = _share(used, seconds)
        bench.to(f"opening the page {loads} times")
        paints, sizes = zip(*(_load(browser, url, size) for _ in range(loads)), strict=True)
        shown = browser.new_page()
        _show(shown, url, size)
        devtools = shown.context.new_cdp_session(shown)
        devtools.send("Performance.enable")  # it counts from here on
        time.sleep(SETTLE_SECONDS)
        bench.to(f"a page is open, {seconds:g} s")
        before = _spent(devtools)
        opened = _share(used, seconds)
        script, thread = (1000 * (now - had) / seconds for now, had in zip(_spent(devtools), before, strict=True))
        browser.close()
    title = f"{instances} instances, {routes} routes, {upstreams:,} upstreams"
    figures = [
        Figure(f"first contentful paint, median of {loads}", median(paints), "ms", at_most=GOAL_PAINT_MS),
        Figure("fetched for it, data apart", max(sizes) / 1024, "KiB", at_most=GOAL_KIB),
        Figure("the instance, CPU above that of a closed page", 100 * (opened - closed), "%", at_most=GOAL_SHARE),
        Figure("the page's scripts", script, "ms/s"),
        Figure("the page's thread, layout and painting included", thread, "ms/s"),
        Figure("the instance, CPU while nobody looks", 100 * closed, "%"),
    ]
    return Outcome([Section(title, figures, [NOTE])])


def _write(fleet: Fleet, size: Size) -> None:
    """The routes that the others show, into Redis."""
    redis: Any = fleet.redis.client
    for path, members in size.members().items():
        redis.sadd(keys.route_key(path), *members)


def _share(used: ProcessTree, seconds: float) -> float:
    """Of one core, for so long."""
    began, had = time.monotonic(), used.cpu_seconds()
    time.sleep(seconds)
    return (used.cpu_seconds() - had) / (time.monotonic() - began)


def _show(shown: Page, url: str, size: Size) -> None:
    """Until all upstreams are on it."""
    shown.goto(url)
    shown.wait_for_function("most => document.querySelectorAll('.cell').length >= most", arg=size.on_routes)


def _load(browser: Browser, url: str, size: Size) -> tuple[float, float]:
    """In a browser that knows nothing yet: milliseconds until the first paint, and bytes."""
    context = browser.new_context()
    shown = context.new_page()
    _show(shown, url, size)
    paint, loaded = shown.evaluate(PAINT), shown.evaluate(LOADED)
    context.close()
    return paint, loaded


def _spent(devtools: CDPSession) -> tuple[float, float]:
    """Seconds of scripts, and of all that the page's thread did."""
    found = {each["name"]: each["value"] for each in devtools.send("Performance.getMetrics")["metrics"]}
    return found["ScriptDuration"], found["TaskDuration"]
