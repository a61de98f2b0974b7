"""The ways of draining that are compared, each in simulated time."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf
from random import Random

from bench.quota.as_is import AsIs, Backend, Dag, Gate, Metered, Open
from bench.quota.asking import Distant, Recorded, Simulated
from bench.quota.backlog import Work
from bench.quota.book import Book
from bench.quota.drain import Drain, Manner
from bench.quota.models import Model
from bench.quota.simulated import simulate
from bench.quota.standing import Standing
from slb.quota.client import Router

NETWORK_SECONDS = 0.002
"""To the router and back."""
UNLIMITED = 100
"""By this the limits are raised where callers are to be the bottleneck."""
CROWD = 2
FEW_CALLERS, MANY_SLOTS = 24, 1000


@dataclass(frozen=True)
class Setting:
    """What all ways have in common."""

    models: Sequence[Model]
    backlog: Sequence[Work]
    seed: int


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

    async def run() -> None:
        asking = Distant(Recorded(Simulated(setting.models, Random(setting.seed)), book), NETWORK_SECONDS)
        async with Router(asking) as router:
            await Drain(router, setting.models, manner or Manner(), book).drain(setting.backlog)

    simulate(run())
    return Standing(label, book, setting.models)


def crowded(setting: Setting) -> Standing:
    """Demand above every limit, all the time: twice as many callers as there are slots, who are never restarted and
    know what their calls come to."""
    exact = [replace(work, estimate=work.tokens) for work in setting.backlog]
    workers = CROWD * sum(model.slots for model in setting.models)
    return routed(
        replace(setting, backlog=exact), Manner(timeout=inf, workers=workers), f"slb, {workers} callers, exact"
    )


def few_callers(setting: Setting) -> Standing:
    """Neither limits nor slots are short, so that only weights decide."""
    roomy = [
        replace(each, limit=each.limit * UNLIMITED, burst=each.burst * UNLIMITED, slots=MANY_SLOTS)
        for each in setting.models
    ]
    return routed(replace(setting, models=roomy), Manner(workers=FEW_CALLERS), f"slb, {FEW_CALLERS} callers")


def share_error(standing: Standing) -> float:
    """By how much the model that is furthest from its weight's share of the tokens is off, relative to that."""
    weights = sum(model.weight for model in standing.models)
    tokens = sum(entry.known(inf) for entry in standing.book.all())
    return max(
        abs(
            sum(entry.known(inf) for entry in standing.book.entries.get(model.name, []))
            / tokens
            / (model.weight / weights)
            - 1
        )
        for model in standing.models
    )
