"""What a command asks of Redis without an instance."""

from slb.config import Settings
from slb.control.connection import Connection, connect
from slb.control.pool import CONNECT_DEADLINE
from slb.control.registry import Registry
from slb.observe.log import configure_logging
from slb.observe.metrics import Metrics


async def redis_answers(settings: Settings) -> bool:
    """Whether the Redis of the settings, not an embedded one, answers within about a second. Raises
    RedisRefused."""
    configure_logging("error")
    connection = Connection(settings.redis_url.get_secret_value(), Metrics(), command_deadline=CONNECT_DEADLINE)
    try:
        await connection.probe()
        return connection.up
    finally:
        await connection.aclose()


async def reset_redis(settings: Settings) -> int:
    """Empty Redis of all routes on purpose; how many there were. Raises SlbError."""
    configure_logging("error")
    connection = await connect(settings, Metrics())
    try:
        return await Registry(connection).reset()
    finally:
        await connection.aclose()
