"""`python -m bench quota`: a backlog drained through the router, and as it is drained without one."""

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Annotated

from redis import Redis
from typer import Option

from bench.command import Bench, refuse
from bench.errors import BenchError
from bench.gpu.work import TRACES_FOLDER
from bench.quota.as_is import AsIs
from bench.quota.asking import Distant, Recorded, Simulated
from bench.quota.book import Book, Standing
from bench.quota.crowds import Crowd, short_of_callers, short_of_slots, short_of_tokens
from bench.quota.drain import Drain, Manner
from bench.quota.report import demand_goals, drain_goals, drain_section, models_section
from bench.quota.script import redis_for_simulation
from bench.quota.simulated import simulate
from bench.quota.work import Setting, least_seconds, ten_models, traced
from bench.table import Outcome, Section
from slb.quota.client import Router

ALL = 1_000_000
NETWORK_SECONDS = 0.002
"""To the router and back."""


def as_is(setting: Setting, metered: bool) -> Standing:
    """20 workers with batches of 10. `metered`: the models answer 429; else the limits are not kept."""
    book = Book()
    simulate(AsIs(setting, book, metered).drain())
    return Standing(f"as-is, {'models answer 429' if metered else 'limits not kept'}", book, setting.models)


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


def crowded(crowd: Crowd, *more: str) -> Standing:
    """More calls wanted than may go."""
    return routed(crowd.setting, crowd.manner, ", ".join([f"slb, {crowd.callers} callers", *more]))


WAYS: dict[str, Callable[[Setting], Standing]] = {
    "as-is, limits not kept": lambda setting: as_is(setting, metered=False),
    "as-is, models answer 429": lambda setting: as_is(setting, metered=True),
    "through the router": routed,
    "demand above every limit": lambda setting: crowded(short_of_tokens(setting), "exact"),
    "few callers": lambda setting: crowded(short_of_callers(setting)),
    "more callers than slots, and tokens enough": lambda setting: crowded(short_of_slots(setting), "slots short"),
}
"""In simulated time."""


def quota(
    bench: Bench,
    prompts: Annotated[int, Option(min=100, help="Of the backlog; fewer where the traces have fewer.")] = ALL,
    scale: Annotated[float, Option(min=0.01, help="All limits times this.")] = 1.0,
    seed: Annotated[int, Option(help="The same seed is the same backlog.")] = 1,
    traces: Annotated[Path, Option(help="Where the traces are.")] = TRACES_FOLDER,
) -> Outcome:
    """Ten models of 1 s to 2 min and real prompt lengths: single calls through the quota router beside batches."""
    try:
        backlog = traced(traces, prompts, seed)
    except BenchError as error:
        refuse(f"--traces: {error}")
    setting = Setting(ten_models(backlog, scale), backlog, seed)
    found: list[Standing] = []
    for name, way in WAYS.items():
        bench.to(name)
        found.append(way(setting))
    batches, (through, tokens, callers, slots) = found[:2], found[2:]
    bound = least_seconds(setting.models, setting.backlog)
    title = f"{len(setting.backlog):,} prompts, {len(setting.models)} models, simulated time"
    goals = [*drain_goals(through, batches, bound), *demand_goals(tokens, callers, slots)]
    ways = drain_section(title, [*batches, through, tokens], bound)
    return Outcome([ways, *map(models_section, (through, tokens, slots)), Section("goals", goals)])
