"""What slb may do in a Redis that asks."""

from slb.control import keys

_COMMANDS = (
    *("ping", "client|setname", "select", "psubscribe", "time"),
    *("scan", "type", "exists", "get", "smembers", "sismember", "hgetall", "evalsha", "script|load"),
    *("sadd", "srem", "hset", "hsetnx", "hdel", "del", "set", "pexpire", "multi", "exec"),
    *("publish", "subscribe", "hget", "hmget", "hkeys", "hlen", "hstrlen", "hexists", "incr"),
    *("hincrby", "zcount", "zrangebylex", "zrangebyscore", "zremrangebyscore"),
    *("zadd", "zrem", "zscore", "zmscore", "zrange", "zrank", "zcard", "info", "memory|usage"),
    *(
        "getrange",
        "lrange",
        "persist",
        "rpush",
        "srandmember",
        "strlen",
        "wait",
        "zrevrange",
        "role",
        "cluster|slots",
        "xadd",
        "xrange",
        "xrevrange",
    ),
)

CONFIG = ("config|get", "config|set")
"""Wanted to switch keyspace notifications on. Without them do it on the Redis side (`notify-keyspace-events
Kgshxe`); where they are not, slb polls."""

REPLAY_RULES = ("off", f"~{keys.MEMBERS}*", "~slb:*", "-@all", "+@write")
"""Of the user `default`, which is off: no login as it is possible. Redis 7.0 replays what its append-only file has
between MULTI and EXEC (whatever a script has written, too) by the rights of `default`, and drops it where it has
none."""


SENTINEL_RULES = ("-@all", "+auth", "+client|setname", "+sentinel|get-master-addr-by-name")
"""Of slb's user at a Sentinel."""


def _channels(db: int) -> list[str]:
    own = (keys.HEALTH_CHANNEL, keys.GRANTED_CHANNEL + "*", keys.INSTANCES_CHANNEL, keys.JOBS_CHANNEL)
    fleet = (keys.FLEET_ASK_CHANNEL, keys.FLEET_FRAMES_CHANNEL, keys.FLEET_TO_CHANNEL + "*")
    return [*keys.channel_patterns(db), *own, *fleet]


def acl_rules(db: int = 0, config: bool = True) -> list[str]:
    """The rules that follow `ACL SETUSER name on >password`: keys, channels, commands.

    redis-py also sends CLIENT SETINFO, and goes on where it is refused; older servers do not know it.
    """
    key_patterns = [f"~{keys.MEMBERS}*", "~slb:*"]
    channels = [f"&{pattern}" for pattern in _channels(db)]
    commands = [f"+{command}" for command in (*_COMMANDS, *(CONFIG if config else ()))]
    return [*key_patterns, *channels, "-@all", *commands]
