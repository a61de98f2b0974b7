"""`slb top` on a real terminal of tmux, beside a real instance."""

import asyncio
import re
import shutil
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import pytest

from slb.control import keys
from tests.process.commands import Commands, Serving
from tests.support.valkey import Valkey
from tests.support.waiting import until

TMUX = shutil.which("tmux")
pytestmark = pytest.mark.skipif(TMUX is None, reason="needs tmux")


class Terminal(NamedTuple):
    """A tmux server of its own, with one window."""

    socket: Path

    async def tmux(self, *arguments: str) -> str:
        process = await asyncio.create_subprocess_exec(
            str(TMUX), "-S", str(self.socket), "-f", "/dev/null", *arguments, stdout=asyncio.subprocess.PIPE
        )
        printed, _ = await process.communicate()
        return printed.decode()

    async def run(self, size: str, *command: str) -> None:
        width, _, height = size.partition("x")
        await self.tmux("new-session", "-d", "-x", width, "-y", height, "env", "LANG=C.UTF-8", *command)

    async def screen(self) -> str:
        return await self.tmux("capture-pane", "-p")

    async def shows(self, *wanted: str) -> str:
        """The screen, once it has all of them."""
        return await until(self.screen, lambda screen: all(each in screen for each in wanted))

    async def views(self, key: str, *wanted: str) -> None:
        """`shows`, of the view of this key, from another one each time: a key that comes while a window closes may
        be lost with it, and columns that are filled then may stay as narrow as their titles."""

        async def viewed() -> str:
            await self.press("1")
            await self.press(key)
            await asyncio.sleep(0.5)  # else the keys queue up faster than a busy machine draws
            return await self.screen()

        await until(viewed, lambda screen: all(each in screen for each in wanted))

    async def press(self, *keys: str) -> None:
        await self.tmux("send-keys", *keys)


@pytest.fixture
async def terminal(tmp_path: Path) -> AsyncIterator[Terminal]:
    terminal = Terminal(tmp_path / "tmux")
    yield terminal
    await terminal.tmux("kill-server")


async def fleet(slb: Commands, valkey: Valkey) -> tuple[Serving, str]:
    _, member = await slb.upstream("a")
    serving = await slb.until_ready(await slb.serve("--name", "one", redis=valkey.url))
    valkey.admin.sadd(keys.route_key("/p"), member)
    valkey.admin.hset(keys.settings_key("/p"), mapping={"max_inflight": "2", "policy": "least_inflight"})

    await slb.until_status(f"{serving.url}/p", 200)

    async def decided() -> bool:
        """By the ledger: the route's settings hold."""
        await slb.get(f"{serving.url}/p")
        decision = (await slb.json(f"{serving.api}/routes/p"))["decision"]
        return decision is not None and decision["decided_by"] == "redis"

    await until(decided, bool)
    return serving, member


def top(serving: Serving) -> tuple[str, ...]:
    return sys.executable, "-m", "slb", "top", "--url", serving.api


async def test_at_80x24_all_views_are_there_and_an_upstream_is_drained_by_a_key(
    slb: Commands, valkey: Valkey, terminal: Terminal
) -> None:
    serving, member = await fleet(slb, valkey)
    await terminal.run("80x24", *top(serving))
    screen = await terminal.shows("/p", "1 routes", "redis up", "least_infl", "1/1")
    assert max(map(len, screen.splitlines())) <= 80
    await terminal.press("e")
    await terminal.shows("/p: ", "decided by redis", "chosen")
    await terminal.press("Enter")
    await until(terminal.screen, lambda screen: "chosen" not in screen)
    await terminal.views("2", member, "0/2 ▯▯")
    await terminal.press("d")
    await terminal.shows(f"Drain {member}? y or n")
    await terminal.press("y")
    await terminal.shows("nothing new is sent there")
    await until(lambda: slb.json(f"{serving.api}/upstreams/{member}"), lambda found: found["drain"])
    await terminal.press("Enter")
    await until(terminal.screen, lambda screen: "nothing new" not in screen and "draining" in screen)
    for key, title, empty in (("3", "oldest", "Nobody waits."), ("4", "retrying", "No model has jobs")):
        await terminal.press(key)
        await terminal.shows(title, empty)
    await terminal.press("5")
    await until(terminal.screen, lambda screen: "serving" in screen and "No model" not in screen)
    await terminal.press("/")
    await terminal.shows("text that a row must have")
    await terminal.press("x", "q")
    await terminal.shows("No row has 'xq'")
    await terminal.press("Escape")
    await until(terminal.screen, lambda screen: "No row" not in screen)
    await terminal.press("q")
    await until(terminal.screen, lambda screen: "instances" not in screen)


async def test_at_200x50_rows_are_sorted_filtered_frozen_and_the_instances_end_is_told(
    slb: Commands, valkey: Valkey, terminal: Terminal
) -> None:
    serving, _ = await fleet(slb, valkey)
    valkey.admin.sadd(keys.route_key("/other"), "127.0.0.1:9")
    await terminal.run("200x50", *top(serving))
    await terminal.shows("/p", "/other")
    await terminal.press("r")
    await terminal.shows("↑ route")
    await until(terminal.screen, lambda screen: -1 < screen.find("/p ") < screen.find("/other"))
    await terminal.press("/")
    await terminal.shows("text that a row must have")
    await terminal.press("o", "t", "h")
    await until(
        terminal.screen, lambda screen: "/other" in screen and not re.search(r"^ */p ", screen, re.MULTILINE)
    )
    await terminal.press("Enter")
    await until(terminal.screen, lambda screen: "text that a row" not in screen and "▊" not in screen)
    await terminal.press("f")
    await terminal.shows("FROZEN")
    await terminal.press("f")
    await until(terminal.screen, lambda screen: "FROZEN" not in screen)
    await terminal.press("Escape")
    await terminal.shows("/p ")
    serving.process.kill()
    await terminal.shows("no answer from")
