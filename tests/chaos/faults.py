"""What is done to a running fleet and its Redis, each fault by its name."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any, Protocol

from tests.chaos.cap import Cap
from tests.chaos.cluster import Cluster
from tests.chaos.history import Span
from tests.chaos.route_book import RouteBook
from tests.chaos.server import Server

SETTLED_SECONDS = 5.0
"""After a Redis has come back that lost something, or was away for longer than a request waits for it."""

STALL_SECONDS = 0.06, 0.3
AWAY_SECONDS = 2.0, 4.0
"""Longer than requests wait for Redis (`ledger_patience`, 1.5 s)."""

SHORT_FREEZE_SECONDS = 1.0, 4.0
PAST_THE_LEASE_SECONDS = 12.0
THAW_SECONDS = 2.0
"""A thawed instance may use what it was granted before it hears that its lease has ended."""


@dataclass(frozen=True)
class Lab:
    """All that a fault can reach. `cap` is told when it need not hold; `book` has routes that change."""

    cluster: Cluster
    server: Server
    cap: Cap
    book: RouteBook
    rng: Random

    def now(self) -> float:
        return self.cluster.history.clock()

    def excuse(self, since: float, seconds: float) -> None:
        """From `since` until so many seconds from now the cap need not hold."""
        self.cap.excused.append(Span(since, self.now() + seconds))


class Fault(Protocol):
    """Done to a lab; it returns when it is over, though not all may be well again."""

    __name__: str

    def __call__(self, lab: Lab) -> Awaitable[None]: ...


# -- Redis is whole, and answers soon: nobody may notice


async def cut_one(lab: Lab) -> None:
    """CLIENT KILL of one connection of an instance."""
    admin: Any = lab.server.admin
    ours = admin.client_id()
    others = [each["id"] for each in admin.client_list() if int(each["id"]) != ours and each["name"] == "slb"]
    if others:
        admin.execute_command("CLIENT", "KILL", "ID", lab.rng.choice(others))


async def cut_all(lab: Lab) -> None:
    """CLIENT KILL of all connections, subscriptions too."""
    admin: Any = lab.server.admin
    for kind in ("normal", "pubsub"):
        admin.execute_command("CLIENT", "KILL", "TYPE", kind)


async def pause_clients(lab: Lab) -> None:
    """CLIENT PAUSE: commands wait for up to 0.3 s."""
    lab.server.admin.client_pause(round(lab.rng.uniform(*STALL_SECONDS) * 1000))


async def stall(lab: Lab) -> None:
    """The whole server stands still for up to 0.3 s."""
    lab.server.freeze()
    await asyncio.sleep(lab.rng.uniform(*STALL_SECONDS))
    lab.server.thaw()


async def flush_scripts(lab: Lab) -> None:
    """SCRIPT FLUSH."""
    lab.server.admin.script_flush()


async def restart_quickly(lab: Lab) -> None:
    """kill -9 of Redis, and at once another with all its data."""
    await asyncio.to_thread(lab.server.kill)
    await asyncio.to_thread(lab.server.start)


# -- instances


async def kill_instance(lab: Lab) -> None:
    """kill -9 of one; another comes in its place."""
    lab.cluster.kill(lab.rng.choice(lab.cluster.alive))
    await lab.cluster.start()


async def freeze_briefly(lab: Lab) -> None:
    """SIGSTOP of one for less than its lease."""
    async with lab.cluster.frozen(lab.rng.choice(lab.cluster.alive)):
        await asyncio.sleep(lab.rng.uniform(*SHORT_FREEZE_SECONDS))


async def freeze_past_lease(lab: Lab) -> None:
    """SIGSTOP of one until others may use what it holds."""
    async with lab.cluster.frozen(lab.rng.choice(lab.cluster.alive)):
        await asyncio.sleep(PAST_THE_LEASE_SECONDS)
        lab.excuse(lab.now(), THAW_SECONDS)


# -- Redis is away, or has lost something: the cap need not hold for a while; routes must be right afterwards


async def restart_slowly(lab: Lab) -> None:
    """kill -9 of Redis; it comes back with its data after some seconds."""
    await _away(lab, lambda: None, lab.rng.uniform(*AWAY_SECONDS))


async def older_snapshot(lab: Lab) -> None:
    """Redis comes back as it was before routes were changed."""
    await asyncio.to_thread(lab.server.keep_copy)
    for _ in range(2):
        await lab.book.change(lab.cluster.alive)
    await _away(lab, lab.server.return_to_copy, 0)


async def restart_empty(lab: Lab) -> None:
    """Redis comes back with nothing."""
    await _away(lab, lab.server.lose_data, 0)


async def flush_all(lab: Lab) -> None:
    """FLUSHALL."""
    since = lab.now()
    lab.server.admin.flushall()
    lab.excuse(since, SETTLED_SECONDS)


async def _away(lab: Lab, meanwhile: Callable[[], None], seconds: float) -> None:
    excused = Span(lab.now())  # for as long as it takes
    lab.cap.excused.append(excused)
    await asyncio.to_thread(lab.server.kill)
    meanwhile()
    await asyncio.sleep(seconds)
    await asyncio.to_thread(lab.server.start)
    excused.end = lab.now() + SETTLED_SECONDS


def _named(*faults: Fault) -> dict[str, Fault]:
    return {fault.__name__.replace("_", "-"): fault for fault in faults}


GENTLE = _named(cut_one, cut_all, pause_clients, stall, flush_scripts, restart_quickly)
OF_INSTANCES = _named(kill_instance, freeze_briefly, freeze_past_lease)
LOSSES = _named(restart_slowly, older_snapshot, restart_empty, flush_all)
FAULTS: Mapping[str, Fault] = {**GENTLE, **OF_INSTANCES, **LOSSES}
