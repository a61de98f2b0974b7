"""Whether what Redis has acknowledged is on its disk: jobs live there and nowhere else."""

import structlog
from redis.exceptions import RedisError, ResponseError

from slb.control.connection import Connection
from slb.control.embedded import EmbeddedServer

_WANTED = {"appendonly": "yes", "appendfsync": "always"}
_POLICY = "maxmemory-policy"
_KEEPS_ALL = "noeviction"
_HELP = "set appendonly yes, appendfsync always and maxmemory-policy noeviction: jobs are no cache"

_log = structlog.get_logger()


class Durability:
    """`at_risk`: what may be lost with this Redis, one sentence; empty where nothing is, as far as it tells."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._logged: str | None = None
        self._is_told = False
        self.at_risk = ""

    async def look(self) -> None:
        """Ask Redis, and log what is news. An embedded server is set to write before it answers: others of this
        machine may have started it, for whom a second is near enough. It is started so when it has died, whoever
        does that: until it was set again, it would acknowledge what it cannot write."""
        found: list[dict[str, str] | None] = [None]
        fault, embedded = "", self._connection.embedded
        try:
            clients = await self._connection.servers.clients()
            if embedded is not None:
                fault = await self._write_first(embedded)
                await clients[0].config_set("appendfsync", _WANTED["appendfsync"])
            found = [await client.config_get(*_WANTED, _POLICY) for client in clients]
        except ResponseError as error:
            _log.debug("config_forbidden", error=str(error))
        except (RedisError, OSError, TimeoutError):
            return  # it is asked again
        self.at_risk = next(filter(None, (*map(_risk, found), fault)), "")
        if self.at_risk != self._logged:
            self._logged = self.at_risk
            if self.at_risk:
                _log.warning("jobs_at_risk", redis=self._connection.url_shown, why=self.at_risk, help=_HELP)

    async def _write_first(self, embedded: EmbeddedServer) -> str:
        """Why its next start will not be so; empty where it will."""
        try:
            if not self._is_told:
                await embedded.write_first()
                self._is_told = True
        except OSError as error:
            return f"once the embedded server has died, acknowledged jobs may be lost: {error}"
        return ""


def _risk(found: dict[str, str] | None) -> str:
    if found is None:
        return "Redis does not report how it is configured: acknowledged jobs may be lost when it ends"
    if found.get("appendonly") != "yes":
        return "appendonly is no: all acknowledged jobs may be lost when Redis ends"
    if found.get(_POLICY, _KEEPS_ALL) != _KEEPS_ALL:
        return f"maxmemory-policy is {found[_POLICY]}: jobs may be evicted"
    if found.get("appendfsync") != "always":
        lost = "the jobs of a second may be lost when the machine ends, or Redis on a slow or full disk"
        return f"appendfsync is {found.get('appendfsync')}: {lost}"
    return ""
