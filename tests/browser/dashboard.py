"""The dashboard in a browser, as a test uses it."""

import re
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import quote, urlsplit

from tests.support.waiting import patience

_LOST = re.compile(r"Failed to load resource|net::ERR_")
"""What a browser says itself where a connection or an answer is not as the page would like it."""


class Dashboard:
    """`complaints`: what stands in the console, and requests to other servers; `refusals`: what the browser says
    itself of answers that are no success."""

    def __init__(self, page: Any, url: str) -> None:
        self.page = page
        self.url = url
        self.complaints: list[str] = []
        self.refusals: list[str] = []
        page.set_default_timeout(patience(8) * 1000)
        page.on("console", self._heard)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("request", self._asked)

    def check(self) -> None:
        assert not self.complaints, self.complaints

    async def show(self, view: str = "overview", argument: str = "") -> None:
        """Go to a view; it is shown on return."""
        path = f"{view}/{quote(argument, safe='')}" if argument else view
        await self.page.goto(f"{self.url}/#/{path}")
        await self.page.wait_for_selector(f".view.of-{view}")
        if (
            view == "route"
        ):  # another's may have stood there; the title cuts long names, and shows what is odd in them
            await self.until("#title", re.split(r"[^!-~]", argument)[0][:32])

    async def until(self, selector: str, text: str | re.Pattern[str] = "", gone: bool = False) -> None:
        """Wait until something that `selector` finds has `text`; with `gone`, until nothing has."""
        found = self.page.locator(selector)
        found = found.filter(has_text=text) if text else found
        await found.first.wait_for(state="detached" if gone else "visible")

    async def click(self, name: str | re.Pattern[str], within: str = "body", number: int = 0) -> None:
        """Click a button by its name."""
        await self.page.locator(within).get_by_role("button", name=name).nth(number).click()

    async def confirm(self, does: str, **fields: str) -> None:
        """Fill in the dialog that is open, and confirm it."""
        for name, value in fields.items():
            await self.page.locator(f"dialog input[name={name}]").fill(value)
        await self.page.locator("dialog").get_by_role("button", name=does, exact=True).click()

    async def toast(self, text: str | re.Pattern[str]) -> None:
        """What was done is said so."""
        await self.until("#toasts .toast", text)

    async def undo(self) -> None:
        """The last thing that was done."""
        await self.page.locator("#toasts").get_by_role("button", name="Undo").last.click()

    async def texts(self, selector: str) -> list[str]:
        found: list[str] = await self.page.locator(selector).all_inner_texts()
        return found

    def _heard(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            (self.refusals if _LOST.search(message.text) else self.complaints).append(message.text)

    def _asked(self, request: Any) -> None:
        if urlsplit(request.url).netloc != urlsplit(self.url).netloc:
            self.complaints.append(f"a request to {request.url}")


OpenDashboard = Callable[..., Awaitable[Dashboard]]
