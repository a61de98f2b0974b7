"""One typed caller for each script; of those that lanes run by themselves, the source."""

from collections.abc import Sequence
from importlib.resources import files
from typing import Any, Literal, NamedTuple

from slb.control import keys
from slb.control.connection import Connection


class ReadMany:
    """`lua/read_many.lua`: SMEMBERS or HGETALL of many keys in one step."""

    def __init__(self, connection: Connection) -> None:
        self._script = connection.client.register_script(_source("read_many"))

    async def __call__(self, command: Literal["SMEMBERS", "HGETALL"], keys: Sequence[str]) -> list[Any]:
        """The replies in the order of `keys`: lists of texts (a hash as names and values in turn), or errors."""
        replies: list[Any] = await self._script(keys=list(keys), args=[command])
        return replies


class ClaimChecks:
    """`lua/claim_checks.lua`: which of many health checks fall to this instance, and what is known of each."""

    def __init__(self, connection: Connection) -> None:
        self._script = connection.client.register_script(_source("claim_checks"))

    async def __call__(self, asks: Sequence[tuple[str, str, int, int, int]], room: int) -> list[Any]:
        """`asks`: key, state, run, hold and life in milliseconds. For each: [claim, milliseconds, state, run]."""
        replies: list[Any] = await self._script(keys=[ask[0] for ask in asks], args=[room, *_flat(asks)])
        return replies


class ReportChecks:
    """`lua/report_checks.lua`: what health checks have found, where their claims still hold."""

    def __init__(self, connection: Connection) -> None:
        self._script = connection.client.register_script(_source("report_checks"))

    async def __call__(self, channel: str, reports: Sequence[tuple[str, int, str, int, int]]) -> int:
        """`reports`: key, claim, state, run, life in milliseconds. How many counted."""
        args = [channel, *_flat(reports)]
        return int(await self._script(keys=[report[0] for report in reports], args=args))


class Deregister:
    """`lua/deregister.lua`: members leave their routes, and with its last use a member's attributes go."""

    def __init__(self, connection: Connection) -> None:
        self._script = connection.client.register_script(_source("deregister"))

    async def __call__(self, rows: Sequence[tuple[str, str, str, bool]]) -> list[bool]:
        """`rows`: a route's key, the key of the attributes, the member, whether no other route is known to name it.
        For each, whether it was there."""
        names = [row[0] for row in rows] + [row[1] for row in rows]
        args = [row[2] for row in rows] + [str(int(row[3])) for row in rows]
        return [bool(removed) for removed in await self._script(keys=names, args=args)]


class Reaped(NamedTuple):
    """What `lua/reap.lua` found. `drift`: by how much scores were not the sum of what is held; `repaired`: keys and
    fields that were not what they should be; `taken_back`: grants nobody took up."""

    was_due: bool
    reaped: int
    drift: int
    repaired: int
    taken_back: int


class Reap:
    """`lua/reap.lua`: what the dead held is given back, and what is damaged is mended."""

    def __init__(self, connection: Connection) -> None:
        self._script = connection.client.register_script(_source("pool") + _source("reap"))

    async def __call__(self, pool: str, lease: int, reap_until: int, patience: int, period: int) -> Reaped:
        """Times in milliseconds. `reap_until`: by Redis's clock; a call that runs later reaps nobody."""
        args = [lease, reap_until, patience, period, keys.GRANTED_CHANNEL, pool]
        due, reaped, drift, repaired, taken_back = await self._script(keys=keys.pool_keys(pool), args=args)
        return Reaped(bool(due), int(reaped), int(float(drift)), int(repaired), int(taken_back))


def ledger_source() -> str:
    """`lua/ledger.lua`, whole: a lane calls it by itself."""
    return _source("pool") + _source("ledger")


def quota_source() -> str:
    """`lua/quota.lua`, whole: control/quota.py calls it."""
    return "".join(map(_source, ("quota_state", "quota_models", "quota_decide", "quota")))


def _flat(rows: Sequence[tuple[Any, ...]]) -> list[Any]:
    """What stands behind the key in each row, one after another."""
    return [value for row in rows for value in row[1:]]


def _source(name: str) -> str:
    return files("slb.control").joinpath(f"lua/{name}.lua").read_text()
