"""The ways of draining that are compared, each in simulated time."""

from random import Random

from redis import Redis

from bench.quota.as_is import AsIs, Backend, Dag, Gate, Metered, Open
from bench.quota.asking import Distant, Recorded, Simulated
from bench.quota.book import Book
from bench.quota.crowds import Crowd, Setting, short_of_callers, short_of_slots, short_of_tokens
from bench.quota.drain import Drain, Manner
from bench.quota.script import redis_for_simulation
from bench.quota.simulated import simulate
from bench.quota.standing import Standing
from slb.quota.client import Router

NETWORK_SECONDS = 0.002
"""To the router and back."""


def as_is(setting: Setting, label: str, gate: Gate) -> Standing:
    """20 workers with batches of 10."""
    book = Book()
    backend = Backend(setting.models, gate, book, Random(setting.seed))
    simulate(AsIs(backend, Dag(), book).drain(setting.backlog))
    return Standing(label, book, setting.models)


def unheld(setting: Setting) -> Standing:
    """As it is, where nobody holds it to the limits."""
    return as_is(setting, "as-is, limits not kept", Open())


def metered(setting: Setting) -> Standing:
    """As it is, where the models themselves do."""
    return as_is(setting, "as-is, models answer 429", Metered())


def routed(setting: Setting, manner: Manner | None = None, label: str = "slb, as /advice says") -> Standing:
    """Single calls through the router."""
    book = Book()

    async def run(redis: Redis) -> None:
        asking = Distant(Recorded(Simulated(setting.models, redis, Random(setting.seed)), book), NETWORK_SECONDS)
        async with Router(asking) as router:
            await Drain(router, setting.models, manner or Manner(), book).drain(setting.backlog)

    with redis_for_simulation() as redis:
        simulate(run(redis))
    return Standing(label, book, setting.models)


def crowded(setting: Setting) -> Standing:
    """Demand above every limit, all the time."""
    return _in_simulated_time(short_of_tokens(setting), "exact")


def few_callers(setting: Setting) -> Standing:
    """Neither limits nor slots are short, so that only weights decide."""
    return _in_simulated_time(short_of_callers(setting))


def full_slots(setting: Setting) -> Standing:
    """Slots are short, and nothing else."""
    return _in_simulated_time(short_of_slots(setting), "slots short")


def _in_simulated_time(crowd: Crowd, *more: str) -> Standing:
    label = ", ".join([f"slb, {crowd.callers} callers", *more])
    return routed(crowd.setting, crowd.manner, label)
