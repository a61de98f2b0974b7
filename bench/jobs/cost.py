"""`python -m bench jobs`: what a job costs the worker and Redis, beside other job systems; what submitting one
costs, and whether that grows with how many wait."""

import time
from typing import Annotated, Any, NamedTuple

from typer import Option

from bench.command import Bench, chosen
from bench.jobs.systems import MODEL, NAMES, PYTHON_PEERS, Slb, System, make, missing
from bench.measure import Case, Wrk, pinned_cores
from bench.processes import BenchError, Processes, Running, wait_until
from bench.procstat import ProcessTree
from bench.table import Figure, Outcome, Section, short
from slb.control import keys

AT_ONCE, WARM_UP, FEW = 50, 200, 1000
CPU_GOAL, REDIS_GOAL, BULLMQ_GOAL, PYTHON_GOAL = 200.0, 60.0, 3.0, 7.0
SUBMIT_GOAL, LIST_GOAL, GROWTH_GOAL = 3_000.0, 20_000.0, 1.3
TAIL_SECONDS = 0.3  # for outcomes to be kept after the last job has begun
SUBMIT = Case("submit", "one job a request", "/queue/submit")
SUBMIT_MANY = Case("submit_many", "1,000 jobs a request", "/queue/submit-many")
COLUMNS = ("", "worker µs", "jobs/s a core", "Redis µs", "commands", "CPU vs slb")

KEYS = keys.job_keys(MODEL)
JOB, QUEUE, NUMBER = KEYS[0], f"{KEYS[3]}normal", KEYS[5]
COPIED_AT_ONCE = 5000
# As lua/jobs_state.lua keeps one that waits; copying is quicker than submitting a million of them.
COPY = """
local job = redis.call('GET', KEYS[1] .. 'first1')
for number = tonumber(ARGV[1]), tonumber(ARGV[2]) do
  redis.call('SET', KEYS[1] .. 'waiting' .. number, job)
  redis.call('ZADD', KEYS[2], redis.call('INCR', KEYS[3]), 'waiting' .. number)
end"""


class Cost(NamedTuple):
    """CPU time of worker and Redis for each, microseconds; commands in Redis, those in scripts too."""

    worker: float
    redis: float
    commands: float = 0.0

    @property
    def both(self) -> float:
        return self.worker + self.redis


class Meter:
    """From when it is made on: CPU of a worker and of its system's Redis."""

    def __init__(self, system: System, worker: Running) -> None:
        self._redis, self._tree = system.redis, ProcessTree(worker.pid)
        self._before = self._now()

    def each(self, count: int) -> Cost:
        """For each of so many."""
        used = [now - had for now, had in zip(self._now(), self._before, strict=True)]
        return Cost(used[0] / count * 1e6, used[1] / count * 1e6, used[2] / count)

    def _now(self) -> tuple[float, float, float]:
        stats: Any = self._redis.client.info("commandstats")
        commands = sum(each["calls"] for each in stats.values())
        return self._tree.cpu_seconds(), self._redis.cpu_seconds(), commands


def jobs(
    bench: Bench,
    only: Annotated[str, Option(help="Systems, with commas.")] = "all",
    rounds: Annotated[int, Option(min=1, help="Times that each has its turn.")] = 3,
    count: Annotated[int, Option(min=1, help="Jobs of one turn.")] = 3000,
    seconds: Annotated[int, Option(min=1, help="That each kind of request is sent.")] = 4,
    waiting: Annotated[int, Option(min=1, help="Jobs that wait, where they are many.")] = 1_000_000,
) -> Outcome:
    """What a job costs, beside SAQ, arq, taskiq, streaq and BullMQ. The worker has the last core, all else the
    first."""
    core, load_core = pinned_cores()
    names = chosen("--only", only, NAMES)
    notes = [why for name in names if (why := missing(name))]
    found: dict[str, list[Cost]] = {name: [] for name in names if not missing(name)}
    for number in range(rounds):
        for name, costs in found.items():
            bench.to(f"round {number + 1}: {name}")
            with Processes() as processes:
                costs.append(_turn(make(name, bench, processes, AT_ONCE), count, core))
    best = {name: min(costs, key=lambda cost: cost.worker) for name, costs in found.items()}
    title = f"{count:,} jobs, {AT_ONCE} at a time, each one POST of 250 bytes; best of {rounds} rounds"
    sections = [Section(title, (), notes, COLUMNS, [_row(name, best) for name in best]), _goals(best)]
    with Processes() as processes:
        bench.to("slb: submitting, and many that wait")
        system = make("slb", bench, processes, AT_ONCE)
        assert isinstance(system, Slb)
        sections += _slb_alone(bench, system, core, load_core, count, seconds, waiting)
    return Outcome(sections)


def _turn(system: System, count: int, core: int) -> Cost:
    """One turn of one system: the jobs are there before it begins."""
    worker = system.start(core)
    system.submit("warm", WARM_UP)
    system.pod.wait(WARM_UP)
    system.hold(worker)
    system.submit("job", count)
    meter = Meter(system, worker)
    system.let_go(worker)
    system.pod.wait(WARM_UP + count)
    time.sleep(TAIL_SECONDS)
    worker.check_alive()
    return meter.each(count)


def _row(name: str, best: dict[str, Cost]) -> list[str]:
    cost = best[name]
    ratio = cost.worker / best["slb"].worker if "slb" in best else float("nan")
    figures = (cost.worker, 1e6 / cost.worker, cost.redis, cost.commands, ratio)
    return [name, *map(short, figures)]


def _goals(best: dict[str, Cost]) -> Section:
    figures = []
    if slb := best.get("slb"):
        figures += [
            Figure("slb: CPU of the worker", slb.worker, "µs a job", at_most=CPU_GOAL),
            Figure("slb: CPU of Redis", slb.redis, "µs a job", at_most=REDIS_GOAL),
        ]
        if "BullMQ" in best:
            figures.append(
                Figure("BullMQ's worker, of slb's", best["BullMQ"].worker / slb.worker, at_least=BULLMQ_GOAL)
            )
        if python := {name: best[name].worker for name in PYTHON_PEERS if name in best}:
            name = min(python, key=lambda each: python[each])
            what = f"the best of the Python peers, {name}, of slb's"
            figures.append(Figure(what, python[name] / slb.worker, at_least=PYTHON_GOAL))
    return Section("goals", figures)


def _slb_alone(
    bench: Bench, slb: Slb, core: int, load_core: int, count: int, seconds: int, waiting: int
) -> list[Section]:
    worker = slb.start(core)
    slb.submit("warm", WARM_UP)
    slb.pod.wait(WARM_UP)
    slb.hold(worker)
    slb.submit("first", 1)

    def cost(case: Case, connections: int = 64, each: int = 1) -> Cost:
        meter, wrk = Meter(slb, worker), Wrk(load_core, connections)
        report = wrk.run(case, slb.instance.api_port, seconds, bench.home)
        if not report.requests or report.errors:
            raise BenchError(f"{case.title}: {report.requests} requests, errors: {report.errors}")
        return meter.each(report.requests * each)

    tables, rates, bytes_each = list[dict[str, Cost]](), list[Cost](), 0.0
    for wanted in (FEW, waiting):
        bench.to(f"slb: {wanted:,} jobs wait")
        bytes_each = _fill(slb, worker, wanted + count)
        dispatched = _dispatched(slb, worker, count)
        job: Any = slb.redis.client.zrange(QUEUE, FEW // 2, FEW // 2)
        status = Case("repeat", "status", f"/queue/jobs/{job[0]}?model={MODEL}")
        tables.append({"dispatch": dispatched, "status": cost(status), "submit": cost(SUBMIT)})
        rates = rates or [tables[0]["submit"], cost(SUBMIT_MANY, 4, 1000)]
    few, many = tables
    rows = [[what, *(short(each) for table in tables for each in table[what][:2])] for what in few]
    columns = ("µs of CPU", *(f"{who}, {wait:,}" for wait in (FEW, waiting) for who in ("slb", "Redis")))
    ratios = [Figure(f"{what}, both", many[what].both / few[what].both, at_most=GROWTH_GOAL) for what in few]
    memory = Figure("memory of Redis for a job that waits", bytes_each, "bytes")
    return [
        _rates(*rates),
        Section(f"with {FEW:,} and with {waiting:,} jobs waiting", (), (), columns, rows),
        Section("with many waiting, of what it is with few", [*ratios, memory]),
    ]


def _rates(one: Cost, many: Cost) -> Section:
    return Section(
        "submitting, jobs a second of one core of slb",
        [
            Figure(SUBMIT.title, 1e6 / one.worker, "jobs/s", at_least=SUBMIT_GOAL),
            Figure(SUBMIT_MANY.title, 1e6 / many.worker, "jobs/s", at_least=LIST_GOAL),
            Figure(f"CPU of Redis, {SUBMIT.title}", one.redis, "µs a job"),
            Figure(f"CPU of Redis, {SUBMIT_MANY.title}", many.redis, "µs a job"),
        ],
    )


def _dispatched(slb: Slb, worker: Running, count: int) -> Cost:
    """Of those that wait so many are run, and a few more."""
    before, meter = slb.pod.look(), Meter(slb, worker)
    slb.let_go(worker)
    slb.pod.wait(before + count)
    slb.hold(worker)
    time.sleep(TAIL_SECONDS)
    return meter.each(slb.pod.look() - before)


def _fill(slb: Slb, worker: Running, wanted: int) -> Any:
    """Let so many wait; bytes of Redis's memory for each that was added."""
    redis: Any = slb.redis.client
    there, first, used = redis.zcard(QUEUE), int(redis.get(NUMBER)), redis.info("memory")["used_memory"]
    end = first + wanted - there
    for begin in range(first, end, COPIED_AT_ONCE):
        redis.eval(COPY, 3, JOB, QUEUE, NUMBER, begin, min(begin + COPIED_AT_ONCE, end) - 1)
    wait_until(lambda: not redis.info("persistence")["aof_rewrite_in_progress"], worker, 120, "rewriting the file")
    return (redis.info("memory")["used_memory"] - used) / max(1, end - first)
