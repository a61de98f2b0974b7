"""The one way to Redis: deadlines on everything, no hidden retries, and a record of whether it answers."""

import asyncio
import ssl
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any
from weakref import WeakSet

import structlog
from redis.exceptions import (
    AuthenticationError,
    AuthorizationError,
    InvalidResponse,
    NoPermissionError,
    RedisError,
    ResponseError,
)

from slb.config import Settings
from slb.control import keys, redis_url
from slb.control.cluster_reads import ClusterReads
from slb.control.embedded import EmbeddedServer
from slb.control.endpoint import Endpoint
from slb.control.fitness import Unfit, check_version, scheme_instead
from slb.control.led import ClusterNodes, led
from slb.control.pool import COMMAND_DEADLINE
from slb.control.redis_url import Address
from slb.control.resp import readable
from slb.control.script_line import ScriptLine
from slb.control.sentinels import MasterNotFound
from slb.control.wire import OnReply, Wire
from slb.errors import RedisRefused, RedisUnavailable
from slb.observe.metrics import Metrics

_FOR_GOOD = ("DB index", "DENIED", "invalid DB index")
"""How a refusal begins that only another setting can end; logins and rights have exceptions of their own."""

_RIGHTS = (
    f"its user needs the keys {keys.MEMBERS}* and slb:*, and what docs/operations.md#what-slb-needs-in-redis has"
)

_log = structlog.get_logger()


class Connection:
    """A pool of connections to one Redis. `up` is what the watcher last found; `note` is for the log of changes."""

    def __init__(
        self,
        url: str,
        metrics: Metrics,
        clock: Callable[[], float] = time.monotonic,
        embedded: EmbeddedServer | None = None,
        command_deadline: float = COMMAND_DEADLINE,
    ) -> None:
        self._url = url
        self.url_shown = redis_url.shown(url)
        self.embedded = embedded
        self.command_deadline = command_deadline
        self._metrics = metrics
        self.note = metrics.changes.note
        self._clock = clock
        self._wires: WeakSet[Wire] = WeakSet()
        self._reads: ClusterReads | None = None
        self.servers = led(url, command_deadline, self._moved)
        self.client: Any = self.servers.client
        """Commands end within the deadline, and are never sent twice. Any: redis-py's stubs know of no decoding."""
        self._changed_at: float | None = None

    @property
    def up(self) -> bool:
        """Whether Redis answers, as the watcher last found."""
        return self._metrics.redis.up

    @property
    def db(self) -> int:
        """The number of the database, as keyspace channels name it."""
        return self.servers.db

    def mark_up(self) -> None:
        """Redis answers. Logged where that is news."""
        if not self.up and self._changed_at is not None:
            self.note("redis_back", self.url_shown)
        if not self.up or self._changed_at is None:
            _log.info("redis_up", redis=self.url_shown, **self._since_change())
        self._metrics.redis.up = True

    def mark_down(self, error: BaseException | str) -> None:
        """Redis does not answer. Logged where that is news; traffic goes on from the last table."""
        if self.up:
            self.note("redis_lost", self.url_shown, str(error))
        if self.up or self._changed_at is None:
            _log.warning("redis_down", redis=self.url_shown, error=str(error), **self._since_change())
        self._metrics.redis.up = False

    def _since_change(self) -> dict[str, float]:
        before, self._changed_at = self._changed_at, self._clock()
        return {} if before is None else {"seconds_before": round(self._changed_at - before, 3)}

    async def probe(self) -> None:
        """Ask once. Raises RedisRefused where Redis refuses, or cannot be slb's; where it cannot be reached, `up`
        becomes False."""
        try:
            async with asyncio.timeout(self.command_deadline):
                await self.client.exists(keys.GENERATION)  # PING is refused where the last save has failed
                if self.servers.cluster is None:  # where another node may be away
                    await self.client.exists(keys.route_key("/"))  # an ACL may forbid keys of one kind alone
                with readable(), suppress(ResponseError):  # INFO may be forbidden
                    found = await self.servers.at(keys.GENERATION, lambda client: client.info("server"))
                    check_version(found)
        except Unfit as error:
            raise RedisRefused(f"Redis at {self.url_shown}: {error}") from None
        except (RedisError, OSError, TimeoutError) as error:
            if refusal := refusal_in(error):
                raise RedisRefused(f"Redis at {self.url_shown} refused: {refusal}{_mend(error)}") from None
            if not is_unmade(error) and (scheme := await scheme_instead(self._url, self.command_deadline)):
                speaks = "speaks TLS" if scheme == "rediss" else "speaks no TLS"
                wanted = f"redis_url is to begin with {scheme}://"
                raise RedisRefused(f"Redis at {self.url_shown}: that port {speaks}, so {wanted}") from None
            self.mark_down(error or "no answer in time")
        else:
            self.mark_up()

    @asynccontextmanager
    async def answering(self) -> AsyncIterator[Any]:
        """The client, for a few commands and the reading of their replies. Raises RedisUnavailable."""
        try:
            async with asyncio.timeout(self.command_deadline):
                with readable():
                    yield self.client
        except TimeoutError:
            raise RedisUnavailable(f"Redis did not answer within {self.command_deadline:g} s") from None
        except ResponseError as error:
            raise RedisUnavailable(f"Redis refused: {error}") from None
        except (RedisError, OSError) as error:
            raise RedisUnavailable(f"Redis does not answer: {error}", reached=not is_unmade(error)) from None

    async def look(self) -> None:
        """Find out whether another server has become the master, where anything tells; connections to the one
        before end. That nobody can be asked is not raised: the server may be well all the same."""
        with suppress(RedisError):
            await self.servers.look()

    def _moved(self) -> None:
        """Other servers are the masters: those to the ones before could go on with what nobody else sees."""
        self.note("redis_replaced", self.url_shown, "another server is the master")
        for wire in list(self._wires):
            if not wire.is_current:
                wire.close()

    def script_line(self, source: str, key: str) -> ScriptLine:
        """A connection of its own for one script with keys in the slot of `key`; not connected yet, and without a
        deadline of its own."""
        return ScriptLine(lambda: self.wire(key), source)

    def reads(self, source: str) -> ClusterReads:
        """What reads many keys of a cluster; one for all callers."""
        if self._reads is None:
            nodes = self.servers
            assert isinstance(nodes, ClusterNodes)

            def new_line(address: Address) -> ScriptLine:
                return ScriptLine(lambda: self.wire_to(nodes.node(address)), source)

            self._reads = ClusterReads(nodes.cluster, new_line, self.command_deadline)
        return self._reads

    def wire(self, key: str, on_push: OnReply | None = None) -> Wire:
        """A connection beside the pool, being made now, for what is asked of `key`."""
        return self.wire_to(self.servers.endpoint(key), on_push)

    def wire_to(self, endpoint: Endpoint, on_push: OnReply | None = None) -> Wire:
        """The same, to there."""
        wire = Wire(endpoint, on_push)
        self._wires.add(wire)
        return wire

    async def aclose(self) -> None:
        """Close every connection, and leave the embedded server where there is one."""
        self.servers.close()
        if self._reads is not None:
            self._reads.close()
        with suppress(RedisError, OSError, TimeoutError):
            await self.servers.aclose()
        if self.embedded is not None:
            await self.embedded.release()


async def connect(
    settings: Settings,
    metrics: Metrics,
    clock: Callable[[], float] = time.monotonic,
    revive: bool = True,
) -> Connection:
    """The connection `settings.redis_url` names, asked once. Raises RedisRefused for a URL or a login that can
    never work, ConfigError where the embedded server cannot run; nothing where Redis is merely unreachable."""
    url = settings.redis_url.get_secret_value()
    embedded = None
    async with AsyncExitStack() as undo:
        if redis_url.scheme_of(url) == redis_url.EMBEDDED:
            named = url.removeprefix(f"{redis_url.EMBEDDED}://")
            embedded = EmbeddedServer(Path(named) if named else settings.data_dir, revive)
            url = await embedded.acquire()
            undo.push_async_callback(embedded.release)
        connection = Connection(url, metrics, clock, embedded)
        undo.push_async_callback(connection.aclose)
        await connection.probe()
        undo.pop_all()
    return connection


def refusal_in(error: BaseException) -> str | None:
    """What Redis refused for good, as one sentence; None where trying again may help."""
    if isinstance(error.__cause__, RedisError):  # redis-py wraps the error of a new connection
        return refusal_in(error.__cause__)
    if isinstance(error, AuthenticationError | AuthorizationError | NoPermissionError):
        return str(error)
    if isinstance(error, ResponseError):  # a failed save, no memory, a replica, loading, ...: it passes
        return str(error) if str(error).startswith(_FOR_GOOD) else None
    if isinstance(error, InvalidResponse) or "Protocol error" in str(error):
        return "what listens there does not speak the Redis protocol"
    if isinstance(error.__context__, ssl.SSLCertVerificationError):
        return str(error.__context__)
    return None


def _mend(error: BaseException) -> str:
    """What to change where this was refused for good; empty where the refusal says it."""
    if isinstance(error.__cause__, RedisError):
        return _mend(error.__cause__)
    if isinstance(error, NoPermissionError):
        return f"; {_RIGHTS}"
    if isinstance(error, AuthenticationError | AuthorizationError):
        return "; redis_url names the user and the password, as redis://USER:PASSWORD@HOST"
    if isinstance(error, ResponseError) and "DB index" in str(error):
        return (
            "; redis_url names the database behind the host, as /0: the server's `databases` says how many it has"
        )
    return ""


def is_unmade(error: BaseException) -> bool:
    """Whether no connection came to be, so that Redis cannot have done anything."""
    if isinstance(error, MasterNotFound):
        return True
    return isinstance(error.__context__, ConnectionRefusedError | FileNotFoundError)  # redis-py replaces them
