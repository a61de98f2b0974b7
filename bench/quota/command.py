"""`python -m bench quota`: a backlog drained through the router, and as it is drained without one."""

import asyncio
import math
from collections.abc import Sequence
from random import Random
from typing import Annotated

from typer import Option

from bench.command import Bench, refuse
from bench.gpu.work import TRACES, TracesOption
from bench.processes import BenchError
from bench.quota.book import Book, Standing
from bench.quota.drain import RESTART_SECONDS, AsIs, Drain
from bench.quota.script import redis_for_simulation
from bench.quota.simulated import Simulated, simulate
from bench.quota.work import (
    AT_ONCE,
    AT_ONCE_SLOTS,
    MINUTE,
    Model,
    Setting,
    least_seconds,
    short_of_callers,
    short_of_slots,
    short_of_tokens,
    ten_models,
    traced,
)
from bench.table import Figure, Outcome, Section, percentile, short
from slb.quota.client import Router

ALL = 1_000_000
OF_IDEAL = 1.2
BEFORE = (10.9, 13.9, 4.0, 1.4)
"""What `at_once` came to for each of `AT_ONCE` when one waiting caller was let in each 100 ms."""
OF_AS_IS, OF_BOUND, KEPT, LONG_RUN, SHARE_PERCENT = 0.5, 1.1, 0.9, 0.99, 2.0


def as_is(setting: Setting, metered: bool) -> Standing:
    """20 workers with batches of 10. `metered`: the models answer 429; else the limits are not kept."""
    book = Book()
    simulate(AsIs(setting, book, metered).drain())
    return Standing(f"as-is, {'models answer 429' if metered else 'limits not kept'}", book, setting.models)


def routed(setting: Setting, label: str = "slb, as /advice says", timeout: float = RESTART_SECONDS) -> Standing:
    """Single calls through the router."""
    book = Book()
    with redis_for_simulation() as redis:

        async def run() -> None:
            async with Router(Simulated(setting.models, redis, Random(setting.seed), book)) as router:
                await Drain(router, setting, book, timeout).drain()

        simulate(run())
    return Standing(label, book, setting.models)


def at_once(callers: int, seconds: float) -> float:
    """How long so many take that come together with one call each, of what it takes at least."""
    slots = Model("m", limit=60_000_000, speed=1.0, first=0.0, slots=AT_ONCE_SLOTS, weight=1, burst=10_000_000)
    with redis_for_simulation() as redis:

        async def run() -> float:
            async with Router(Simulated([slots], redis, Random(1), Book())) as router, asyncio.TaskGroup() as group:
                for _ in range(callers):
                    group.create_task(call(router))
            return asyncio.get_running_loop().time()

        async def call(router: Router) -> None:
            async with router.admitted(estimated_tokens=1):
                await asyncio.sleep(seconds)

        return simulate(run()) / (seconds * callers / AT_ONCE_SLOTS)


def _at_once(ratios: Sequence[float]) -> Section:
    columns = ("", "of the ideal", "before")
    rows = [
        [_crowd(each), f"{ratio:.2f}", f"{before:.1f}"]
        for each, ratio, before in zip(AT_ONCE, ratios, BEFORE, strict=True)
    ]
    notes = ["before: when one waiting caller was let in each 100 ms."]
    return Section(f"one call each, all at once, {AT_ONCE_SLOTS} slots", (), notes, columns, rows, dim=1)


def _crowd(crowd: tuple[int, float]) -> str:
    return f"{crowd[0]} callers, {crowd[1]:g} s a call"


def quota(
    bench: Bench,
    prompts: Annotated[int, Option(min=100, help="Of the backlog; fewer where the traces have fewer.")] = ALL,
    scale: Annotated[float, Option(min=0.01, help="All limits times this.")] = 1.0,
    seed: Annotated[int, Option(help="The same seed is the same backlog.")] = 1,
    traces: TracesOption = None,
) -> Outcome:
    """Ten models of 1 s to 2 min and real prompt lengths: single calls through the quota router beside batches."""
    if traces is None:
        refuse(f"--traces: name the folder with {', '.join(TRACES.values())}")
    try:
        backlog = traced(traces, prompts, seed)
    except BenchError as error:
        refuse(f"--traces: {error}")
    setting = Setting(ten_models(backlog, scale), backlog, seed)
    bench.to("as-is, limits not kept; models answer 429")
    batches = [as_is(setting, metered=False), as_is(setting, metered=True)]
    bench.to("through the router, as /advice says")
    through = routed(setting)
    bench.to("demand above every limit")
    crowd = short_of_tokens(setting)
    tokens = routed(crowd, f"slb, {crowd.callers} callers, exact")
    bench.to("few callers")
    callers = routed(short_of_callers(setting))
    bench.to("more callers than slots, and tokens enough")
    crowd = short_of_slots(setting)
    slots = routed(crowd, f"slb, {crowd.callers} callers, slots short")
    bench.to("callers with one call each")
    ratios = [at_once(*each) for each in AT_ONCE]
    bound = least_seconds(setting.models, setting.backlog)
    title = f"{len(setting.backlog):,} prompts, {len(setting.models)} models, simulated time"
    ways = _ways(title, [*batches, through, tokens], bound)
    goals = _goals(through, min(each.book.drained for each in batches), bound, tokens, callers, slots)
    goals += [
        Figure(f"{_crowd(each)}: of the ideal", ratio, at_most=OF_IDEAL)
        for each, ratio in zip(AT_ONCE, ratios, strict=True)
    ]
    return Outcome([ways, *map(_models, (through, tokens, slots)), _at_once(ratios), Section("goals", goals)])


def _ways(title: str, standings: Sequence[Standing], bound: float) -> Section:
    """A row for each way of draining. `bound` is seconds."""
    notes = [
        "fullest 60 s: the most tokens any model admitted in any minute, in units of its limit and one bucket. "
        "idle: share of the quotas that was left unused until the last prompt was taken up. "
        "waits kept: the share of callers that waited as told and were admitted on their next try; p50: of waits."
    ]
    columns = ("", "minutes", "vs bound", "calls", "repeated", "idle", "fullest 60 s", "waits kept", "p50")
    rows = [["the quotas' own bound", f"{bound / MINUTE:.1f}", "1.00", *[""] * 6]]
    for each in standings:
        book, drained = each.book, each.book.drained
        waits = [f"{book.kept():.1%}", f"{short(_median_wait(each))} s"] if book.waits else ["", ""]
        calls, share = sum(part.calls for part in each.parts), _of_bound(drained, bound)
        row = [each.label, f"{drained / MINUTE:.1f}", f"{share:.2f}", f"{calls:,}", f"{book.repeated:,}"]
        rows.append([*row, f"{each.idle:.1%}", f"{each.fullest:.2f}", *waits])
    return Section(title, (), notes, columns, rows, dim=1)


def _models(standing: Standing) -> Section:
    """How each model held its limits, and what it got."""
    notes = [
        "rate: tokens admitted after the first minute, in units of the limit. off by: of its share of all tokens, "
        "relative to what its weight makes due."
    ]
    columns = (
        *("", "tokens/min", "slots", "weight", "calls", "at once", "fullest 60 s", "rate", "idle"),
        *("slots in use", "share", "off by"),
    )
    rows = []
    for part in standing.parts:
        model = [part.model.name, f"{part.model.limit:,}", str(part.model.slots), str(part.model.weight)]
        held = [f"{part.calls:,}", str(part.at_once), f"{part.most:.3f}", f"{part.rate:.3f}", f"{part.idle:.1%}"]
        rows.append([*model, *held, f"{part.in_use:.1%}", f"{part.share:.1%}", f"{part.off:+.2%}"])
    return Section(f"{standing.label}, model by model", (), notes, columns, rows)


def _goals(
    through: Standing, fastest: float, bound: float, tokens: Standing, callers: Standing, slots: Standing
) -> list[Figure]:
    """Beside the quicker of the ways without a router; and where tokens are short, or callers, or slots, which are
    as the weights are."""
    drained = through.book.drained
    demand, full, worst = "demand above every limit", "slots the bottleneck", "worst share, off its weight by"
    few, slowest = 100 * callers.share_error, min(part.rate for part in tokens.parts)
    return [
        Figure("time to drain, of as-is (the quicker of both)", drained / fastest, at_most=OF_AS_IS),
        Figure("time to drain, of the quotas' own bound", _of_bound(drained, bound), at_most=OF_BOUND),
        Figure("waits that came true", through.book.kept(), at_least=KEPT),
        Figure("fullest 60 s of any model, of limit + bucket", through.fullest, at_most=1.0),
        Figure(f"{demand}: least long-run rate, of the limit", slowest, at_least=LONG_RUN),
        Figure(f"{demand}: waits that came true", tokens.book.kept(), at_least=KEPT),
        Figure(f"{demand}: fullest 60 s, of limit + bucket", tokens.fullest, at_most=1.0),
        Figure(f"{demand}: in flight above the cap", tokens.over_cap, at_most=0),
        Figure(f"callers the bottleneck: {worst}", few, "%", at_most=SHARE_PERCENT),
        Figure(f"{full}: {worst}", 100 * slots.share_error, "%", at_most=SHARE_PERCENT),
        Figure(f"{full}: in flight above the cap", slots.over_cap, at_most=0),
        Figure(f"{full}: waits that came true, after a minute", slots.book.kept(MINUTE), at_least=KEPT),
        Figure(f"{full}: the same from the start", slots.book.kept()),
        Figure(f"{full}: waits that ended before the run did", 100 * slots.book.waited_out, "%"),
        Figure(f"{full}: wait told, median", _median_wait(slots), "s"),
        Figure(f"{full}: least slots in use", 100 * min(part.in_use for part in slots.parts), "%"),
    ]


def _of_bound(seconds: float, bound: float) -> float:
    """Infinite where the buckets alone, as they are at first, would take the whole backlog."""
    return seconds / bound if bound else math.inf


def _median_wait(standing: Standing) -> float:
    """Seconds."""
    return percentile(standing.book.waits, 0.5) / 1000
