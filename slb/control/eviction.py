"""Whether Redis may throw away what slb keeps there: said once, at the start."""

import structlog
from redis.exceptions import ResponseError

from slb.control.connection import Connection

_KEEPS_ALL = "noeviction"

_log = structlog.get_logger()


async def warn_of_eviction(connection: Connection) -> None:
    """Log where a full Redis removes keys: routes go with `allkeys-...`, counts of slots with `volatile-...`, which
    takes what has a lifetime. Where Redis does not let us see it, nothing is said."""
    try:
        memory = await connection.client.info("memory")
    except ResponseError as error:
        _log.debug("info_forbidden", error=str(error))
        return
    policy, most = memory.get("maxmemory_policy", _KEEPS_ALL), memory.get("maxmemory", 0)
    if most and policy != _KEEPS_ALL:
        _log.warning(
            "redis_may_evict",
            redis=connection.url_shown,
            policy=policy,
            maxmemory=most,
            help=f"set maxmemory-policy {_KEEPS_ALL}: routes and counts of slots are no cache",
        )
