"""Pictures of the dashboard for the documents, of the fleet that `slb demo --keep` leaves: `make screenshots`."""

import asyncio
import re
import sys
from pathlib import Path

from playwright.async_api import Browser, async_playwright

from tools import browsers

_IMAGES = Path(__file__).parents[1] / "docs" / "images"
_DASHBOARD = re.compile(r"^ +dashboard (http://[0-9.:]+)/$")
_LIVED = 150.0
"""Seconds of traffic that the pictures show."""
_MOST = 200_000
"""Bytes of one picture."""
_PICTURES = {
    "dashboard-overview": ("overview", "light", 1280, 900),
    "dashboard-overview-dark": ("overview", "dark", 1280, 900),
    "dashboard-route": (f"route/{'/models/chat'.replace('/', '%2F')}", "light", 1280, 760),
    "dashboard-upstreams": ("upstreams", "light", 1280, 640),
    "dashboard-jobs": ("jobs", "light", 1280, 720),
    "dashboard-narrow": ("overview", "dark", 390, 844),
}


async def main() -> int:
    demo = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "slb", "demo", "--keep"), stdout=asyncio.subprocess.PIPE
    )
    assert demo.stdout is not None
    try:
        async for line in demo.stdout:
            if found := _DASHBOARD.match(line.decode().rstrip()):
                await _take_all(found[1])
                return 0
        return 1
    finally:
        if demo.returncode is None:
            demo.terminate()
        await demo.wait()


async def _take_all(url: str) -> None:
    executable = browsers.installed()
    if executable is None:
        raise SystemExit(f"slb: none of these browsers is there: {', '.join(browsers.NAMES)}")
    async with async_playwright() as driver:
        browser = await driver.chromium.launch(executable_path=executable, args=["--no-sandbox"])
        await asyncio.sleep(_LIVED)
        for name, picture in _PICTURES.items():
            size = await _take(browser, url, name, *picture)
            print(f"docs/images/{name}.png: {size / 1024:.0f} KiB")
            if size > _MOST:
                raise SystemExit(f"slb: it has more than {_MOST} bytes")


async def _take(browser: Browser, url: str, name: str, view: str, scheme: str, width: int, height: int) -> int:
    """The size of the file."""
    page = await browser.new_page(
        viewport={"width": width, "height": height}, color_scheme="dark" if scheme == "dark" else "light"
    )
    await page.goto(f"{url}/#/{view}")
    await page.wait_for_selector(".view")
    await asyncio.sleep(4)  # what comes with the next events
    path = _IMAGES / f"{name}.png"
    await page.screenshot(path=path)
    await page.close()
    return path.stat().st_size


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
