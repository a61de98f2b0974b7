"""Many routes of many upstreams: their names, and how they get into Redis."""

from redis import Redis

COMMANDS_AT_ONCE = 500


def path_of(number: int) -> str:
    """Of one route of a large table."""
    return f"/team-{number // 100}/model-{number % 100}"


def set_of(path: str) -> str:
    """The key of a route's set, as a person would write it."""
    return f"slb_{path[1:]}"


def members_of(number: int, each: int) -> list[str]:
    """The upstreams of one route; no two routes have one in common."""
    numbers = range(number * each, number * each + each)
    return [f"10.{each >> 16 & 255}.{each >> 8 & 255}.{each & 255}:8000" for each in numbers]


def write_table(client: Redis, routes: int, each: int) -> None:
    """By pipelines of SADD, as a script of a user's would."""
    pipe = client.pipeline(transaction=False)
    for number in range(routes):
        pipe.sadd(set_of(path_of(number)), *members_of(number, each))
        if len(pipe) == COMMANDS_AT_ONCE:
            pipe.execute()
    pipe.execute()
