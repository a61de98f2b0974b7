"""`python -m bench`: slb beside its peers; `python -m bench COMMAND`: a figure of slb alone."""

from dataclasses import asdict
from typing import Annotated

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
from bench.figures.command import run, run_bare
from bench.figures.large_table import LargeTable
from bench.gpu.command import gpu
from bench.handoff.command import handoff
from bench.lab.command import simulate
from bench.outcome import Check, Json, instance_counts, refuse
from bench.quota.command import quota
from bench.quota.rate import quota_rate

app = typer.Typer(add_completion=False)
app.callback(invoke_without_command=True)(compare)
app.command()(gpu)
app.command()(handoff)
app.command()(quota)
app.command()(quota_rate)
app.command()(simulate)


@app.command()
def register(
    tries: Annotated[int, typer.Option(min=1, help="How many routes are registered.")] = 200,
    json: Json = None,
    check: Check = False,
) -> None:
    """How long after a registration through one instance the other serves it."""
    code = run(
        "register",
        lambda fleet, steps: registrations.measure(fleet, steps, tries),
        tries,
        {"tries": tries},
        json,
        check,
    )
    raise typer.Exit(code)


@app.command()
def outage(
    rate: Annotated[int, typer.Option(min=1, help="Requests per second, whatever the replies.")] = 500,
    seconds: Annotated[float, typer.Option(min=0.1, help="Without Redis, each time.")] = 10.0,
    routes: Annotated[int, typer.Option(min=0, help="Routes of 10 upstreams besides the one asked.")] = 100,
    json: Json = None,
    check: Check = False,
) -> None:
    """Redis killed under traffic and brought back: with its data, empty, with older data; and `slb reset`."""
    plan = outages.Plan(rate, seconds, routes)
    code = run(
        "outage",
        lambda fleet, steps: outages.measure(fleet, steps, plan),
        outages.STEPS,
        {"rate": rate, "outage_seconds": seconds, "routes": routes},
        json,
        check,
    )
    raise typer.Exit(code)


@app.command()
def routes(
    count: Annotated[int, typer.Option("--routes", min=100, help="Routes in Redis.")] = 10_000,
    upstreams: Annotated[int, typer.Option(min=1, help="Of each route; no two have one in common.")] = 10,
    resyncs: Annotated[int, typer.Option(min=1, help="Of each kind.")] = 5,
    json: Json = None,
    check: Check = False,
) -> None:
    """A large table: the first sync, memory, lookups, and how long a resync holds the event loop."""
    table = LargeTable(count, upstreams)
    code = run(
        "routes",
        lambda fleet, steps: large.measure(fleet, steps, table, resyncs),
        count + large.STEPS,
        {"routes": count, "upstreams_each": upstreams, "resyncs": resyncs},
        json,
        check,
    )
    raise typer.Exit(code)


@app.command()
def memory(
    connections: Annotated[int, typer.Option(min=1, help="Kept alive and idle.")] = 10_000,
    mebibytes: Annotated[int, typer.Option(min=1, help="Of a body with a slow side, each way.")] = 1024,
    json: Json = None,
    check: Check = False,
) -> None:
    """What idle connections cost, and bodies whose receiver is slow."""
    plan = memories.Plan(connections, mebibytes)
    settings: dict[str, object] = {"connections": connections, "mebibytes": mebibytes}
    code = run(
        "memory",
        lambda fleet, steps: memories.measure(fleet, steps, plan),
        memories.STEPS,
        settings,
        json,
        check,
    )
    raise typer.Exit(code)


@app.command()
def soak(
    minutes: Annotated[int, typer.Option(min=1, help="Of load; growth is told for each sixth.")] = 30,
    rate: Annotated[int, typer.Option(min=1, help="Requests a second, of six kinds.")] = 250,
    json: Json = None,
    check: Check = False,
) -> None:
    """Whether memory stops growing under steady mixed load."""
    plan = soaks.Plan(minutes, rate)
    settings: dict[str, object] = {"minutes": minutes, "rate": rate}
    code = run("soak", lambda fleet, steps: soaks.measure(fleet, steps, plan), soaks.PARTS, settings, json, check)
    raise typer.Exit(code)


@app.command()
def slow(
    clients: Annotated[int, typer.Option(min=3, help="Slow ones: heads, bodies and readers, a third each.")] = 200,
    rate: Annotated[int, typer.Option(min=1, help="Healthy requests per second.")] = 500,
    seconds: Annotated[float, typer.Option(min=0.1, help="Without slow clients, and again with them.")] = 4.0,
    rounds: Annotated[int, typer.Option(min=1, help="How often; noise of the machine goes to both.")] = 7,
    attack_rounds: Annotated[int, typer.Option(min=1, help="The same, of each attacker.")] = 3,
    bandwidth: Annotated[float, typer.Option(min=0.01, help="MB/s that one attacker sends.")] = 0.8,
    json: Json = None,
    check: Check = False,
) -> None:
    """Slow clients, and single ones that do their worst, beside healthy ones: what the healthy ones notice."""
    plan = slowness.Plan(clients, rate, seconds, rounds)
    attack = attacks.Plan(rate, seconds, attack_rounds, bandwidth * attacks.MEGABYTE)
    settings: dict[str, object] = {**asdict(plan), "attacks": asdict(attack)}
    total = rounds + len(attacks.ATTACKS)
    code = run(
        "slow", lambda fleet, steps: slowness.measure(fleet, steps, plan, attack), total, settings, json, check
    )
    raise typer.Exit(code)


@app.command()
def early(
    uploads: Annotated[int, typer.Option(min=1, help="To each server through each proxy.")] = 80,
    json: Json = None,
    check: Check = False,
) -> None:
    """Replies to uploads that are not read to their end: how many are lost, by server and proxy."""
    code = run_bare(
        "early",
        lambda processes, home, steps: early_replies.measure(processes, home, steps, uploads),
        early_replies.STEPS,
        {"uploads": uploads},
        json,
        check,
    )
    raise typer.Exit(code)


@app.command()
def stream(
    count: Annotated[int, typer.Option("--streams", min=1, help="Each way.")] = 500,
    json: Json = None,
    check: Check = False,
) -> None:
    """The first token of a stream, through slb and directly."""
    code = run(
        "stream",
        lambda fleet, steps: streams.measure(fleet, steps, count),
        streams.STEPS,
        {"streams": count},
        json,
        check,
    )
    raise typer.Exit(code)


@app.command()
def policy(
    rounds: Annotated[int, typer.Option(min=1, help="Times that both have their turn.")] = 3,
    seconds: Annotated[int, typer.Option(min=1, help="Length of one counted run.")] = 4,
    json: Json = None,
    check: Check = False,
) -> None:
    """What least_inflight costs a small request, beside round_robin."""
    plans = policies.Plans(rounds, seconds)
    code = run_bare(
        "policy",
        lambda processes, home, steps: policies.measure(processes, home, steps, plans),
        policies.STEPS_A_ROUND * rounds,
        {"rounds": rounds, "seconds": seconds},
        json,
        check,
    )
    raise typer.Exit(code)


@app.command()
def ledger(
    count: Annotated[int, typer.Option("--pairs", min=1000, help="Slots taken and given back.")] = 100_000,
    json: Json = None,
    check: Check = False,
) -> None:
    """The ledger alone: slots taken and given back a second, against one Redis."""
    code = run(
        "ledger",
        lambda fleet, steps: ledgers.measure(fleet, steps, count),
        ledgers.STEPS,
        {"pairs": count},
        json,
        check,
    )
    raise typer.Exit(code)


@app.command()
def kill(
    times: Annotated[int, typer.Option(min=1, help="Instances killed, one after another; 15 s each.")] = 20,
    clients: Annotated[int, typer.Option(min=1, help="Each has one request in flight all the time.")] = 100,
    seed: Annotated[int, typer.Option(help="Of who is killed, when, and how long requests take.")] = 1,
    json: Json = None,
    check: Check = False,
) -> None:
    """kill -9 of one of three instances under capped load: when are the counts in Redis true again?"""
    plan = kills.Plan(times, clients, seed)
    code = run(
        "kill",
        lambda fleet, steps: kills.measure(fleet, steps, plan),
        times,
        {"times": times, "clients": clients, "seed": seed},
        json,
        check,
    )
    raise typer.Exit(code)


@app.command()
def scale(
    instances: Annotated[str, typer.Option(help="Numbers of instances, with commas.")] = "2,10,50,100",
    pods: Annotated[int, typer.Option(min=1, max=60_000, help="Upstreams of the one pool.")] = 1000,
    rate: Annotated[float, typer.Option(min=1, help="Requests a second through all of them together.")] = 200,
    seconds: Annotated[float, typer.Option(min=1, help="That each number is loaded.")] = 10,
    most: Annotated[float, typer.Option(min=1, help="The highest load tried, in requests a second.")] = 10_000,
    policy: Annotated[str, typer.Option(help="Of the route: least_inflight or round_robin.")] = "least_inflight",
    seed: Annotated[int, typer.Option(help="Of arrivals, and of which instance each is for.")] = 1,
    json: Json = None,
    check: Check = False,
) -> None:
    """Instances without HTTP on one pool of many pods: what a request costs Redis, and where local mode begins."""
    if policy not in scales.POLICIES:
        refuse(f"--policy: {policy}: known are {', '.join(scales.POLICIES)}")
    plan = scales.Plan(instance_counts(instances), pods, rate, seconds, most, policy, seed)
    code = run(
        "scale",
        lambda fleet, steps: scales.measure(fleet, steps, plan),
        len(plan.instances),
        asdict(plan),
        json,
        check,
    )
    raise typer.Exit(code)


@app.command()
def rolling(
    rate: Annotated[int, typer.Option(min=1, help="Requests per second, whatever the replies.")] = 500,
    rounds: Annotated[int, typer.Option(min=1, help="Times that everything is restarted.")] = 2,
    json: Json = None,
    check: Check = False,
) -> None:
    """Every instance and every upstream restarted under traffic, one after another."""
    plan = restarts.Plan(rate, rounds)
    code = run(
        "rolling",
        lambda fleet, steps: restarts.measure(fleet, steps, plan),
        restarts.steps_of(plan),
        {"rate": rate, "rounds": rounds},
        json,
        check,
    )
    raise typer.Exit(code)


@app.command()
def frozen(
    rate: Annotated[int, typer.Option(min=1, help="Requests per second, whatever the replies.")] = 500,
    seconds: Annotated[float, typer.Option(min=0.1, help="That the upstream is stopped for.")] = 3.0,
    seed: Annotated[int, typer.Option(help="Of which keys are asked for, and when.")] = 1,
    json: Json = None,
    check: Check = False,
) -> None:
    """One of six upstreams with caches frozen under load, with each load signal of the ring."""
    plan = freezes.Plan(rate, seconds, seed)
    code = run(
        "frozen",
        lambda fleet, steps: freezes.measure(fleet, steps, plan),
        len(freezes.SIGNALS),
        {"rate": rate, "seconds": seconds, "seed": seed},
        json,
        check,
    )
    raise typer.Exit(code)


@app.command()
def ring(
    endpoints: Annotated[int, typer.Option(min=4, help="In the ring.")] = 200,
    rounds: Annotated[int, typer.Option(min=1, help="Turns that each has at picking 5,000 keys.")] = 20,
    tries: Annotated[int, typer.Option(min=1, help="Rings made of each kind.")] = 20,
    json: Json = None,
    check: Check = False,
) -> None:
    """The ring in process: a pick beside uhashring's, a pick with all that can come to it, and making rings."""
    plan = rings.Plan(endpoints, rounds, tries)
    settings: dict[str, object] = {"endpoints": endpoints, "rounds": rounds, "tries": tries}
    code = run_bare("ring", lambda _, __, steps: rings.measure(steps, plan), rings.STEPS, settings, json, check)
    raise typer.Exit(code)


@app.command()
def client(
    upstreams: Annotated[int, typer.Option(min=2, max=200, help="On loopback addresses of their own.")] = 20,
    rounds: Annotated[int, typer.Option(min=1, help="Turns that each has, for each policy.")] = 60,
    calls: Annotated[int, typer.Option(min=8, help="In each turn.")] = 800,
    json: Json = None,
    check: Check = False,
) -> None:
    """The client library's own CPU a call, beside the aiohttp call that it wraps."""
    plan = libraries.Plan(upstreams, rounds, calls)
    code = run_bare(
        "client",
        lambda processes, home, steps: libraries.measure(processes, home, steps, plan),
        rounds * len(libraries.POLICIES),
        {"upstreams": upstreams, "rounds": rounds, "calls": calls},
        json,
        check,
    )
    raise typer.Exit(code)


if __name__ == "__main__":
    app(prog_name="python -m bench")
