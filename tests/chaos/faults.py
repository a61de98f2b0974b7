"""What is done to a running fleet and its Redis, each fault by its name."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from random import Random
from typing import Any, Generic, Protocol, TypeVar

from redis.exceptions import ResponseError

from tests.chaos.cap import Cap
from tests.chaos.checker import UNACKNOWLEDGED_SECONDS
from tests.chaos.cluster import Cluster
from tests.chaos.history import Span
from tests.chaos.refusing import REPLIES, Refusing
from tests.chaos.route_book import RouteBook
from tests.chaos.server import Server

SETTLED_SECONDS = 5.0
"""After a Redis has come back that lost something, or was away for longer than a request waits for it."""

STALL_SECONDS = 0.06, 1.2
"""Less than requests wait for Redis (`ledger_patience`, 1.5 s)."""

HALT_SECONDS = 0.06, 0.3
THROUGH_SECONDS = 0.1, 0.5
"""Before and after it refuses, a relay only passes on."""

BUSY_AFTER_MS = 10
STOP_SECONDS = 5.0
EVICTED_BYTES = 2_000, 200_000
AWAY_SECONDS = 2.0, 4.0
"""Longer than that."""

SHORT_FREEZE_SECONDS = 1.0, 4.0
PAST_THE_LEASE_SECONDS = 12.0
THAW_SECONDS = 2.0
"""A thawed instance may use what it was granted before Redis answers that its lease has ended."""


Redis = TypeVar("Redis")


@dataclass(frozen=True)
class Lab(Generic[Redis]):
    """All that a fault can reach. `cap` is set where it need not hold; `book` has routes that change."""

    cluster: Cluster
    server: Redis
    cap: Cap
    book: RouteBook
    rng: Random

    def now(self) -> float:
        return self.cluster.history.clock()

    def excuse(self, since: float, seconds: float) -> None:
        """From `since` until so many seconds from now the cap need not hold."""
        self.cap.excused.append(Span(since, self.now() + seconds))

    @asynccontextmanager
    async def lossy(self) -> AsyncIterator[None]:
        """While this lasts Redis is away or loses something: until it has settled the cap need not hold. At its end
        a setting and a drain flag are changed at once, before what was lost is there again."""
        excused = Span(self.now())
        self.cap.excused.append(excused)
        yield
        await self.book.amend(self.cluster.alive)
        excused.end = self.now() + SETTLED_SECONDS


class Fault(Protocol):
    """Done to a lab; it returns when it is over, though not all may be well again."""

    __name__: str

    def __call__(self, lab: Any) -> Awaitable[None]: ...


OneServer = Lab[Server]


# -- Redis is whole, and answers soon: no client may notice


async def cut_one(lab: OneServer) -> None:
    """CLIENT KILL of one connection of an instance."""
    admin: Any = lab.server.admin
    ours = admin.client_id()
    others = [each["id"] for each in admin.client_list() if int(each["id"]) != ours and each["name"] == "slb"]
    if others:
        admin.execute_command("CLIENT", "KILL", "ID", lab.rng.choice(others))


async def cut_all(lab: OneServer) -> None:
    """CLIENT KILL of all connections, subscriptions too."""
    admin: Any = lab.server.admin
    for kind in ("normal", "pubsub"):
        admin.execute_command("CLIENT", "KILL", "TYPE", kind)


async def pause_clients(lab: Lab[Any]) -> None:
    """CLIENT PAUSE: commands wait for up to 1.2 s."""
    seconds = lab.rng.uniform(*STALL_SECONDS)
    lab.server.admin.client_pause(round(seconds * 1000))
    await asyncio.sleep(seconds)


async def stall(lab: Lab[Any]) -> None:
    """The whole server stands still for up to 1.2 s."""
    lab.server.freeze()
    await asyncio.sleep(lab.rng.uniform(*STALL_SECONDS))
    lab.server.thaw()


async def flush_scripts(lab: OneServer) -> None:
    """SCRIPT FLUSH."""
    lab.server.admin.script_flush()


async def busy_script(lab: OneServer) -> None:
    """A script of another program runs for up to 1.2 s, and all others are answered BUSY."""
    admin: Any = lab.server.admin
    admin.config_set("lua-time-limit", BUSY_AFTER_MS)
    running = asyncio.create_task(asyncio.to_thread(_run_without_end, admin))
    await asyncio.sleep(lab.rng.uniform(*STALL_SECONDS))
    async with asyncio.timeout(STOP_SECONDS):
        while not running.done():
            with suppress(ResponseError):  # NOTBUSY: it has not begun, or has ended
                admin.script_kill()
            await asyncio.sleep(0.01)


def _run_without_end(admin: Any) -> None:
    with suppress(ResponseError):  # it is killed
        admin.eval("while true do end", 0)


async def moved(lab: OneServer) -> None:
    """MOVED, TRYAGAIN, CLUSTERDOWN, LOADING or MASTERDOWN to every command with a key, for up to 1.2 s."""
    async with Refusing(lab.server.place / "refusing.sock", lab.server.socket) as relay:
        lab.server.point_to(relay.path)
        await cut_all(lab)
        await asyncio.sleep(lab.rng.uniform(*THROUGH_SECONDS))
        relay.reply = lab.rng.choice(REPLIES)
        await asyncio.sleep(lab.rng.uniform(*STALL_SECONDS))
        relay.reply = None
        await asyncio.sleep(lab.rng.uniform(*THROUGH_SECONDS))
        lab.server.restore_address()


async def failover(lab: OneServer) -> None:
    """A replica that has all takes over; the server before refuses writes (READONLY), and then ends."""
    await whole(lab.server.replicate)
    await whole(lab.server.hand_over)
    await asyncio.sleep(lab.rng.uniform(0, max(HALT_SECONDS)))
    lab.server.fail_over()
    await asyncio.sleep(lab.rng.uniform(0, max(HALT_SECONDS)))
    await whole(lab.server.retire)


async def restart_quickly(lab: OneServer) -> None:
    """kill -9 of Redis, and at once another with all its data."""
    await whole(lab.server.kill)
    await whole(lab.server.start)


# -- instances


async def kill_instance(lab: Lab[Any]) -> None:
    """kill -9 of one; another comes in its place."""
    lab.cluster.kill(lab.rng.choice(lab.cluster.alive))
    await lab.cluster.start()


async def freeze_briefly(lab: Lab[Any]) -> None:
    """SIGSTOP of one for less than its lease. Where another Redis has come meanwhile, it may lack
    what this one holds."""
    server, since = lab.server.run_id, lab.now()
    instance, seconds = lab.rng.choice(lab.cluster.alive), lab.rng.uniform(*SHORT_FREEZE_SECONDS)
    async with lab.cluster.frozen(instance):
        await asyncio.sleep(seconds)
        if lab.now() - since > UNACKNOWLEDGED_SECONDS:
            lab.cap.thawed(lab.now(), instance.name)
    if lab.server.run_id != server:
        lab.excuse(since, THAW_SECONDS)


async def freeze_past_lease(lab: Lab[Any]) -> None:
    """SIGSTOP of one until others may use what it holds."""
    async with lab.cluster.frozen(lab.rng.choice(lab.cluster.alive)):
        await asyncio.sleep(PAST_THE_LEASE_SECONDS)
        lab.excuse(lab.now(), THAW_SECONDS)


# -- Redis is away, or has lost something: the cap need not hold for a while; routes must be right afterwards


async def restart_slowly(lab: OneServer) -> None:
    """kill -9 of Redis; it comes back with its data after some seconds."""
    await _away(lab, lambda: None, lab.rng.uniform(*AWAY_SECONDS))


async def older_snapshot(lab: OneServer) -> None:
    """Redis comes back as it was before routes were changed."""
    await whole(lab.server.keep_copy)
    await lab.book.change(lab.cluster.alive, 2)
    await _away(lab, lab.server.return_to_copy, 0)


async def lagging_replica(lab: OneServer) -> None:
    """Redis is killed, and a replica takes over that has not received the last changes."""
    await whole(lab.server.replicate)
    lab.server.stop_replicating()
    await lab.book.change(lab.cluster.alive, 2)
    async with lab.lossy():
        lab.server.fail_over()
        await whole(lab.server.retire)


async def cut_file(lab: OneServer) -> None:
    """kill -9 of Redis; its append-only file ends somewhere before the last changes. It is written anew at once, as
    docs/operations.md asks for."""
    first = lab.server.written()
    await lab.book.change(lab.cluster.alive, 2)
    last = lab.server.written()
    size = lab.rng.randrange(min(first, last), last)
    await _away(lab, lambda: lab.server.cut_file(size), 0)
    await whole(lab.server.rewrite_file)


async def evict(lab: OneServer) -> None:
    """`maxmemory` with a policy that evicts: Redis throws some keys away, or all, and may refuse to write."""
    admin: Any = lab.server.admin
    async with lab.lossy():
        admin.config_set("maxmemory-policy", "allkeys-random")
        admin.config_set("maxmemory", admin.info("memory")["used_memory"] - lab.rng.randrange(*EVICTED_BYTES))
        await asyncio.sleep(lab.rng.uniform(*HALT_SECONDS))
        admin.config_set("maxmemory", 0)


async def unequal_knowledge(lab: OneServer) -> None:
    """One instance is frozen while routes change; then Redis comes back as it was before, or empty."""
    lose = lab.rng.choice([lab.server.return_to_copy, lab.server.lose_data])
    async with lab.cluster.frozen(lab.rng.choice(lab.cluster.alive)):
        await whole(lab.server.keep_copy)
        await lab.book.change(lab.cluster.alive, 2)
        await _away(lab, lose, 0)


async def restart_empty(lab: OneServer) -> None:
    """Redis comes back with nothing."""
    await _away(lab, lab.server.lose_data, 0)


async def flush_all(lab: OneServer) -> None:
    """FLUSHALL."""
    async with lab.lossy():
        lab.server.admin.flushall()


async def whole(work: Callable[[], None]) -> None:
    """In a thread, which has ended when this returns, be it cancelled: nothing is started behind the end."""
    running = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        await asyncio.shield(running)
    finally:
        await asyncio.wait([running])


async def _away(lab: OneServer, meanwhile: Callable[[], None], seconds: float) -> None:
    async with lab.lossy():
        await whole(lab.server.kill)
        meanwhile()
        await asyncio.sleep(seconds)
        await whole(lab.server.start)


def named(*faults: Fault) -> dict[str, Fault]:
    return {fault.__name__.replace("_", "-"): fault for fault in faults}


GENTLE = named(cut_one, cut_all, pause_clients, stall, flush_scripts, busy_script, moved, failover, restart_quickly)
OF_INSTANCES = named(kill_instance, freeze_briefly, freeze_past_lease)
LOSSES = named(
    restart_slowly, older_snapshot, lagging_replica, cut_file, evict, unequal_knowledge, restart_empty, flush_all
)
FAULTS: Mapping[str, Fault] = {**GENTLE, **OF_INSTANCES, **LOSSES}
