"""`python -m bench`: slb beside its peers; `python -m bench COMMAND`: a figure of slb alone."""

from collections.abc import Callable
from typing import Annotated, TypeVar

import typer

from bench.comparison import compare
from bench.early import measure as early_replies
from bench.figures import attacks
from bench.figures import frozen as freezes
from bench.figures import kill as kills
from bench.figures import ledger as ledgers
from bench.figures import library as libraries
from bench.figures import memory as memories
from bench.figures import outage as outages
from bench.figures import policy as policies
from bench.figures import register as registrations
from bench.figures import ring as rings
from bench.figures import rolling as restarts
from bench.figures import routes as large
from bench.figures import scale as scales
from bench.figures import slow as slowness
from bench.figures import soak as soaks
from bench.figures import stream as streams
from bench.figures.command import Job, add_figure, with_redis
from bench.figures.large_table import LargeTable
from bench.gpu.command import gpu
from bench.handoff.command import handoff
from bench.lab.command import simulate
from bench.outcome import instance_counts, refuse
from bench.quota.command import quota
from bench.quota.rate import quota_rate

Asked = TypeVar("Asked", bound=Callable[..., Job])

app = typer.Typer(add_completion=False)
app.callback(invoke_without_command=True)(compare)


def figure(asked: Asked) -> Asked:
    """Make a command of it: see `add_figure`."""
    add_figure(app, asked)
    return asked


for each in (gpu, handoff, quota, quota_rate, simulate):
    figure(each)


@figure
def register(
    tries: Annotated[int, typer.Option(min=1, help="How many routes are registered.")] = 200,
) -> Job:
    """How long after a registration through one instance the other serves it."""
    return with_redis(lambda fleet, steps: registrations.measure(fleet, steps, tries), tries)


@figure
def outage(
    rate: Annotated[int, typer.Option(min=1, help="Requests per second, whatever the replies.")] = 500,
    seconds: Annotated[float, typer.Option(min=0.1, help="Without Redis, each time.")] = 10.0,
    routes: Annotated[int, typer.Option(min=0, help="Routes of 10 upstreams besides the one asked.")] = 100,
) -> Job:
    """Redis killed under traffic and brought back: with its data, empty, with older data; and `slb reset`."""
    plan = outages.Plan(rate, seconds, routes)
    return with_redis(lambda fleet, steps: outages.measure(fleet, steps, plan), outages.STEPS)


@figure
def routes(
    count: Annotated[int, typer.Option("--routes", min=100, help="Routes in Redis.")] = 10_000,
    upstreams: Annotated[int, typer.Option(min=1, help="Of each route; no two have one in common.")] = 10,
    resyncs: Annotated[int, typer.Option(min=1, help="Of each kind.")] = 5,
) -> Job:
    """A large table: the first sync, memory, lookups, and how long a resync holds the event loop."""
    table = LargeTable(count, upstreams)
    return with_redis(lambda fleet, steps: large.measure(fleet, steps, table, resyncs), count + large.STEPS)


@figure
def memory(
    connections: Annotated[int, typer.Option(min=1, help="Kept alive and idle.")] = 10_000,
    mebibytes: Annotated[int, typer.Option(min=1, help="Of a body with a slow side, each way.")] = 1024,
) -> Job:
    """What idle connections cost, and bodies whose receiver is slow."""
    plan = memories.Plan(connections, mebibytes)
    return with_redis(lambda fleet, steps: memories.measure(fleet, steps, plan), memories.STEPS)


@figure
def soak(
    minutes: Annotated[int, typer.Option(min=1, help="Of load; growth is told for each sixth.")] = 30,
    rate: Annotated[int, typer.Option(min=1, help="Requests a second, of six kinds.")] = 250,
) -> Job:
    """Whether memory stops growing under steady mixed load."""
    plan = soaks.Plan(minutes, rate)
    return with_redis(lambda fleet, steps: soaks.measure(fleet, steps, plan), soaks.PARTS)


@figure
def slow(
    clients: Annotated[int, typer.Option(min=3, help="Slow ones: heads, bodies and readers, a third each.")] = 200,
    rate: Annotated[int, typer.Option(min=1, help="Healthy requests per second.")] = 500,
    seconds: Annotated[float, typer.Option(min=0.1, help="Without slow clients, and again with them.")] = 4.0,
    rounds: Annotated[int, typer.Option(min=1, help="How often; noise of the machine goes to both.")] = 7,
    attack_rounds: Annotated[int, typer.Option(min=1, help="The same, of each attacker.")] = 3,
    bandwidth: Annotated[float, typer.Option(min=0.01, help="MB/s that one attacker sends.")] = 0.8,
) -> Job:
    """Slow clients, and single ones that do their worst, beside healthy ones: what the healthy ones notice."""
    plan = slowness.Plan(clients, rate, seconds, rounds)
    attack = attacks.Plan(rate, seconds, attack_rounds, bandwidth * attacks.MEGABYTE)
    total = rounds + len(attacks.ATTACKS)
    return with_redis(lambda fleet, steps: slowness.measure(fleet, steps, plan, attack), total)


@figure
def early(
    uploads: Annotated[int, typer.Option(min=1, help="To each server through each proxy.")] = 80,
) -> Job:
    """Replies to uploads that are not read to their end: how many are lost, by server and proxy."""
    return Job(
        lambda processes, home, steps: early_replies.measure(processes, home, steps, uploads), early_replies.STEPS
    )


@figure
def stream(
    count: Annotated[int, typer.Option("--streams", min=1, help="Each way.")] = 500,
) -> Job:
    """The first token of a stream, through slb and directly."""
    return with_redis(lambda fleet, steps: streams.measure(fleet, steps, count), streams.STEPS)


@figure
def policy(
    rounds: Annotated[int, typer.Option(min=1, help="Times that both have their turn.")] = 3,
    seconds: Annotated[int, typer.Option(min=1, help="Length of one counted run.")] = 4,
) -> Job:
    """What least_inflight costs a small request, beside round_robin."""
    plans = policies.Plans(rounds, seconds)
    total = policies.STEPS_A_ROUND * rounds
    return Job(lambda processes, home, steps: policies.measure(processes, home, steps, plans), total)


@figure
def ledger(
    count: Annotated[int, typer.Option("--pairs", min=1000, help="Slots taken and given back.")] = 100_000,
) -> Job:
    """The ledger alone: slots taken and given back a second, against one Redis."""
    return with_redis(lambda fleet, steps: ledgers.measure(fleet, steps, count), ledgers.STEPS)


@figure
def kill(
    times: Annotated[int, typer.Option(min=1, help="Instances killed, one after another; 15 s each.")] = 20,
    clients: Annotated[int, typer.Option(min=1, help="Each has one request in flight all the time.")] = 100,
    seed: Annotated[int, typer.Option(help="Of who is killed, when, and how long requests take.")] = 1,
) -> Job:
    """kill -9 of one of three instances under capped load: when are the counts in Redis true again?"""
    plan = kills.Plan(times, clients, seed)
    return with_redis(lambda fleet, steps: kills.measure(fleet, steps, plan), times)


@figure
def scale(
    instances: Annotated[str, typer.Option(help="Numbers of instances, with commas.")] = "2,10,50,100",
    pods: Annotated[int, typer.Option(min=1, max=60_000, help="Upstreams of the one pool.")] = 1000,
    rate: Annotated[float, typer.Option(min=1, help="Requests a second through all of them together.")] = 200,
    seconds: Annotated[float, typer.Option(min=1, help="That each number is loaded.")] = 10,
    most: Annotated[float, typer.Option(min=1, help="The highest load tried, in requests a second.")] = 10_000,
    policy: Annotated[str, typer.Option(help="Of the route: least_inflight or round_robin.")] = "least_inflight",
    seed: Annotated[int, typer.Option(help="Of arrivals, and of which instance each is for.")] = 1,
) -> Job:
    """Instances without HTTP on one pool of many pods: what a request costs Redis, and where local mode begins."""
    if policy not in scales.POLICIES:
        refuse(f"--policy: {policy}: known are {', '.join(scales.POLICIES)}")
    plan = scales.Plan(instance_counts(instances), pods, rate, seconds, most, policy, seed)
    return with_redis(lambda fleet, steps: scales.measure(fleet, steps, plan), len(plan.instances))


@figure
def rolling(
    rate: Annotated[int, typer.Option(min=1, help="Requests per second, whatever the replies.")] = 500,
    rounds: Annotated[int, typer.Option(min=1, help="Times that everything is restarted.")] = 2,
) -> Job:
    """Every instance and every upstream restarted under traffic, one after another."""
    plan = restarts.Plan(rate, rounds)
    return with_redis(lambda fleet, steps: restarts.measure(fleet, steps, plan), restarts.steps_of(plan))


@figure
def frozen(
    rate: Annotated[int, typer.Option(min=1, help="Requests per second, whatever the replies.")] = 500,
    seconds: Annotated[float, typer.Option(min=0.1, help="That the upstream is stopped for.")] = 3.0,
    seed: Annotated[int, typer.Option(help="Of which keys are asked for, and when.")] = 1,
) -> Job:
    """One of six upstreams with caches frozen under load, with each load signal of the ring."""
    plan = freezes.Plan(rate, seconds, seed)
    return with_redis(lambda fleet, steps: freezes.measure(fleet, steps, plan), len(freezes.SIGNALS))


@figure
def ring(
    endpoints: Annotated[int, typer.Option(min=4, help="In the ring.")] = 200,
    rounds: Annotated[int, typer.Option(min=1, help="Turns that each has at picking 5,000 keys.")] = 20,
    tries: Annotated[int, typer.Option(min=1, help="Rings made of each kind.")] = 20,
) -> Job:
    """The ring in process: a pick beside uhashring's, a pick with all that can come to it, and making rings."""
    plan = rings.Plan(endpoints, rounds, tries)
    return Job(lambda _, __, steps: rings.measure(steps, plan), rings.STEPS)


@figure
def client(
    upstreams: Annotated[int, typer.Option(min=2, max=200, help="On loopback addresses of their own.")] = 20,
    rounds: Annotated[int, typer.Option(min=1, help="Turns that each has, for each policy.")] = 60,
    calls: Annotated[int, typer.Option(min=8, help="In each turn.")] = 800,
) -> Job:
    """The client library's own CPU a call, beside the aiohttp call that it wraps."""
    plan = libraries.Plan(upstreams, rounds, calls)
    total = rounds * len(libraries.POLICIES)
    return Job(lambda processes, home, steps: libraries.measure(processes, home, steps, plan), total)


if __name__ == "__main__":
    app(prog_name="python -m bench")
