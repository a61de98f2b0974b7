"""Texts as strangers write them, and what may not become of them on the page."""

import re

from tests.browser.dashboard import Dashboard

VIEWS = ("overview", "upstreams", "instances", "jobs", "quota", "changes", "explain")

TOO_WIDE = """() => document.documentElement.scrollWidth <= innerWidth ? [] : ["the page",
    ...[...document.querySelectorAll("body *")].filter(each => each.getBoundingClientRect().right > innerWidth)
        .map(each => each.outerHTML.slice(0, 120))]"""

HOSTILE = (
    "<img src=x onerror=\"document.title='taken'\">",
    "evil\u202e0808:1.0.0.01\u2066",
    "x" * 4096,
    "</script><script>alert(1)</script>",
    "\x00\x1b[31m\u200f",
    "__proto__",
    "constructor",
)


async def stays_harmless(page: Dashboard, view: str, argument: str = "") -> None:
    """Go there: no text becomes a part of the page, turns its direction, or makes it wider than its window."""
    await page.show(view, argument)
    assert await page.page.locator("#view img, #view script, #news img").count() == 0
    assert not (found := await page.page.evaluate(TOO_WIDE)), f"{view} {argument[:40]}: {found}"
    shown = await page.page.inner_text("body")
    assert not re.search("[\u202a-\u202e\u2066-\u2069\u200f\x1b]", shown), view
    assert await page.page.title() != "taken"
