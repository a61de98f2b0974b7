"""What is done to a Redis that fails over by itself, each fault by its name."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.chaos.faults import (
    FAULTS,
    HALT_SECONDS,
    OF_INSTANCES,
    Fault,
    Lab,
    named,
    pause_clients,
    stall,
    whole,
)
from tests.chaos.masters import Masters
from tests.chaos.server import Server
from tests.support.redis_nodes import RedisNode

MastersLab = Lab[Masters]


async def cut_one(lab: MastersLab) -> None:
    """CLIENT KILL of one connection of an instance."""
    admin = lab.server.client(lab.rng.choice(lab.server.redis.primaries))
    ours = [each["id"] for each in admin.client_list() if each["name"] == "slb"]
    if ours:
        admin.execute_command("CLIENT", "KILL", "ID", lab.rng.choice(ours))


async def cut_all(lab: MastersLab) -> None:
    """CLIENT KILL of all connections of the masters, subscriptions too; not of those between nodes."""
    for node in lab.server.redis.primaries:
        for kind in ("normal", "pubsub"):
            lab.server.client(node).execute_command("CLIENT", "KILL", "TYPE", kind)


async def flush_scripts(lab: MastersLab) -> None:
    """SCRIPT FLUSH of all masters."""
    for node in lab.server.redis.primaries:
        lab.server.client(node).script_flush()


async def move_slot(lab: MastersLab) -> None:
    """The slot that has the counts moves to another master, key by key."""
    await whole(lambda: lab.server.move_counts(lab.rng))


async def kill_master(lab: MastersLab) -> None:
    """kill -9 of a master; its replica takes over, and it comes back as one."""
    await _replaced(lab, RedisNode.kill)


async def freeze_master(lab: MastersLab) -> None:
    """SIGSTOP of a master until its replica has taken over, and a little longer; then it goes on."""
    await _replaced(lab, RedisNode.freeze)


async def switch_master(lab: MastersLab) -> None:
    """A replica takes over from a master that is well (SENTINEL FAILOVER, CLUSTER FAILOVER)."""
    await _replaced(lab, lab.server.give_up)


async def _replaced(lab: MastersLab, do: Callable[[RedisNode], None]) -> None:
    server = lab.server
    async with lab.lossy():
        old = await asyncio.to_thread(server.take, lab.rng)
        await whole(lambda: do(old))
        await whole(lambda: server.until_replaced(old))
        await asyncio.sleep(lab.rng.uniform(*HALT_SECONDS))
        await whole(server.mend)


_OF_BOTH = named(cut_one, cut_all, pause_clients, stall, flush_scripts, kill_master, freeze_master, switch_master)


@dataclass(frozen=True)
class Kind:
    """A kind of Redis. `make` starts it; `program`: the server program of one, None for the embedded Valkey."""

    make: Callable[[Path | None], Any]
    faults: Mapping[str, Fault]


KINDS = {
    "one": Kind(Server, FAULTS),
    "sentinel": Kind(lambda program: Masters.of_sentinel(), {**_OF_BOTH, **OF_INSTANCES}),
    "cluster": Kind(lambda program: Masters.of_cluster(), {**_OF_BOTH, **named(move_slot), **OF_INSTANCES}),
}
