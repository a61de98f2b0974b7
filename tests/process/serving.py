"""What tests wait for, and read, at a `slb serve`."""

from typing import Any

import orjson

from tests.process.commands import Commands, Serving


async def with_upstream(slb: Commands, serving: Serving, *arguments: str) -> None:
    """A registered upstream of the route /p."""
    await slb.upstream("a", "--register", serving.api, "--path", "/p", *arguments)
    await slb.until_status(f"{serving.url}/p", 200)


async def in_flight(slb: Commands, serving: Serving, count: int) -> None:
    await slb.until_json(f"{serving.api}/status", lambda status: status["traffic"]["inflight"] == count)


async def until_all_ready(slb: Commands, serving: Serving) -> list[int]:
    """Their process ids; none where the process has no workers."""
    status = await slb.until_json(
        f"{serving.api}/status", lambda found: all(worker["ready"] for worker in found.get("workers", []))
    )
    return [worker["pid"] for worker in status.get("workers", [])]


async def until_draining(slb: Commands, serving: Serving) -> None:
    await slb.until_status(f"{serving.api}/readyz", 503)


def events(serving: Serving, name: str) -> list[dict[str, Any]]:
    """What its log has under this name, in lines that have ended."""
    whole, _, _ = serving.process.log.read_text().rpartition("\n")
    return [line for line in map(orjson.loads, whole.splitlines()) if line["event"] == name]
