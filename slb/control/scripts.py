"""One typed caller for each script; of those that lanes run by themselves, the source."""

from collections.abc import AsyncIterator, Iterable, Sequence
from functools import cache
from importlib.resources import files
from itertools import islice
from typing import Any, NamedTuple

from redis.exceptions import ResponseError

from slb.control import keys
from slb.control.connection import Connection
from slb.control.resp import Word, readable
from slb.model import RouteSettings, StoredAttributes

MOST_MEMBERS = 20_000
"""Of a route, or instances in their list: twice the largest route that slb is built for."""

_AT_ONCE = 100
"""Keys read in one step: it holds Redis, and the handling of its reply our event loop, for about a millisecond."""

_SCAN_COUNT = 500

INSTANCE_FIELDS = (
    *("name", "address", "api", "version", "roles", "started", "pid", "host", "process", "binding", "state"),
    *("advertise", "serves", "zone", "weight", "name_server", "dns_ttl"),
)
"""Of an instance's hash, in the order they are shown."""

HASH_FIELDS = tuple(
    {**RouteSettings.model_fields, **StoredAttributes.model_fields, **dict.fromkeys(INSTANCE_FIELDS)}
)
"""All that means anything in a hash that the watcher reads: a large one is not read but for these."""

_MIB = 1 << 20
_BOUNDS: tuple[Word, ...] = (
    *(4 * _MIB, MOST_MEMBERS),  # a set, as Redis counts it: 20,000 members of 100 characters take about that
    *(_MIB // 16, 64),  # a hash that is read whole: some 45 settings, the longest value has 2048 characters
    *(4096, _MIB // 2),  # of one text; of one reply, which is read on where it has ended
    *("(longer than 4096 bytes)", *HASH_FIELDS),  # no setting takes such a value: it is at fault, and reported
)


class Read(NamedTuple):
    """What one key holds. `reply`: a list (a hash as names and values in turn), a text or None, or a
    ResponseError. `size`: bytes, if too large: a set is not read, of a hash only `HASH_FIELDS`."""

    key: str
    reply: Any
    size: int | None

    @property
    def is_there(self) -> bool:
        """Whether it is a collection that holds anything."""
        return self.size is not None or (bool(self.reply) and not isinstance(self.reply, Exception))


class ReadMany:
    """`lua/read_many.lua`: keys in few steps, each of bounded size, and of each key no more than is sensible."""

    def __init__(self, connection: Connection) -> None:
        self._script = connection.client.register_script(source("read_many"))
        self._reads = connection.reads(source("read_many")) if connection.servers.cluster else None

    async def __call__(self, wanted: Iterable[tuple[str, str]]) -> AsyncIterator[Read]:
        """`wanted`: letters, as the script names them, and keys. Any number of them; in their order."""
        waiting = iter(wanted)
        step: list[tuple[str, str]] = []
        while step := [*step, *islice(waiting, _AT_ONCE - len(step))]:
            kinds, names = "".join(kind for kind, _ in step), [key for _, key in step]
            with readable():
                replies, sizes = await self._read(step, names, kinds)
                if not 0 < len(replies) <= len(step):
                    raise ValueError(f"{len(replies)} replies to {len(step)}")
                if not all(_is_of(kind, each) for kind, each in zip(kinds, replies, strict=False)):
                    raise TypeError("a key's content of another type than asked for")
            for index, reply in enumerate(replies, 1):
                yield Read(names[index - 1], reply, sizes.get(index))
            step = step[len(replies) :]

    async def _read(
        self, step: Sequence[tuple[str, str]], names: list[str], kinds: str
    ) -> tuple[list[Any], dict[Any, Any]]:
        if self._reads is not None:
            found = await self._reads(step, _BOUNDS)
            sizes = {index: size for index, (_, size) in enumerate(found, 1) if size is not None}
            return [reply for reply, _ in found], sizes
        replies, large = await self._script(keys=names, args=[kinds, *_BOUNDS])
        return replies, pairs(large)

    async def first(self, kind: str, key: str) -> Read:
        (read,) = [each async for each in self([(kind, key)])]
        return read


async def scan_names(connection: Connection, pattern: str) -> AsyncIterator[list[str]]:
    """`lua/scan_names.lua`: pages of all names but those of jobs and the ledger, each cut behind `keys.LONGEST`;
    some come twice."""
    for node in await connection.servers.clients():
        async for page in _scan_node(node, pattern):
            yield page


async def _scan_node(node: Any, pattern: str) -> AsyncIterator[list[str]]:
    script = node.register_script(source("scan_names"))
    cursor = "0"
    while True:
        with readable():
            cursor, page = await script(args=[cursor, pattern, _SCAN_COUNT, keys.LONGEST])
            if not isinstance(cursor, str) or not _is_of("s", page):
                raise TypeError("no page of names")
        yield page
        if cursor == "0":
            return


class Reaped(NamedTuple):
    """`drift`: by how much scores were not the sum of what is held; `repaired`: keys and fields that were damaged;
    `taken_back`: unused grants; `more`: of the dead more is left than one call takes apart."""

    was_due: bool
    reaped: int
    drift: int
    repaired: int
    taken_back: int
    more: bool


class Reap:
    """`lua/reap.lua`: what the dead held is given back, and what is damaged is mended."""

    def __init__(self, connection: Connection) -> None:
        self._script = connection.client.register_script(_with_pool("reap"))

    async def __call__(
        self,
        pool: str,
        lease: int,
        reap_until: int,
        patience: int,
        period: int,
        life: int = 60_000,
        damaged: str = "",
        ended: Iterable[str] = (),
    ) -> Reaped:
        """Milliseconds. `reap_until`: by Redis's clock; a call that runs later reaps none but `ended`, instances
        that are known to have died. `damaged`: a holder whose calls have met damage; it is mended at once."""
        args = [lease, reap_until, patience, period, keys.GRANTED_CHANNEL, pool, life, damaged, *ended]
        with readable():
            due, reaped, drift, repaired, back, more = await self._script(keys=keys.pool_keys(pool), args=args)
            return Reaped(bool(due), int(reaped), int(float(drift)), int(repaired), int(back), bool(more))


class Idle:
    """`lua/idle.lua`: a member serves nothing, whatever silent holders have of it."""

    def __init__(self, connection: Connection) -> None:
        self._script = connection.client.register_script(_with_pool("idle"))

    async def __call__(
        self, pool: str, member: str, silence: int, lease: int, patience: int, life: int = 60_000
    ) -> int:
        """How many slots were freed. Times in milliseconds: what a holder has stays that has called within
        `silence`."""
        args = [lease, silence, member, patience, life, keys.GRANTED_CHANNEL, pool]
        with readable():
            return int(await self._script(keys=keys.pool_keys(pool), args=args))


@cache
def source(*names: str) -> str:
    """These files of `lua/`, one after another: what a script begins with stands in its first lines."""
    return "".join(files("slb.control").joinpath(f"lua/{name}.lua").read_text() for name in names)


def change_source() -> str:
    return source("revisions", "leases", "discovered", "change")


def ledger_source() -> str:
    return _with_pool("ledger", "took")


def quota_source() -> str:
    parts = ("state", "promises", "models", "waits", "decide")
    return source(*(f"quota_{part}" for part in parts), "quota")


def jobs_source() -> str:
    """`lua/jobs.lua`, whole: control/jobs.py calls it."""
    rest = ("shown", "callbacks", "buffer", "seldom")
    opened = _opened("due", "jobs_due") + _opened("rest", *(f"jobs_{part}" for part in rest))
    return source("jobs_state") + _inside(source("jobs_moves", "jobs_attempts") + opened + source("jobs"))


def _opened(name: str, *files: str) -> str:
    """These as a function that does nothing the second time."""
    return f"function open_{name}()\nopen_{name} = function() end\n{source(*files)}end\n"


def _inside(rest: str) -> str:
    """The rest of a script as a function of its own. Whenever Lua makes a function, it searches for each local
    outside that this one uses, through all that any uses; one level further inside it need not. Of the locals
    outside it may use 60."""
    return f"local function decide()\n{rest}end\nreturn decide()\n"


def own(reply: Any) -> Any:
    """The reply itself. Raises it where it is an error that stood in a reply's place."""
    if isinstance(reply, Exception):
        raise reply
    return reply


def pairs(flat: Sequence[Any]) -> dict[Any, Any]:
    """Names and values that stand in turn, as a dict."""
    return dict(zip(flat[::2], flat[1::2], strict=True))


def _is_of(kind: str, reply: Any) -> bool:
    """Whether `lua/read_many.lua` may reply so for a key that is read as `kind`."""
    if isinstance(reply, ResponseError):
        return True
    if kind in "shz":
        return isinstance(reply, list) and all(isinstance(each, str) for each in reply)
    return reply is None or isinstance(reply, str)


def _with_pool(name: str, *first: str) -> str:
    queue = f"local function open_queue(size)\n{source('queue', 'grants')}end\n"
    return source("pool_keys", *first, "pool") + queue + source(name)
