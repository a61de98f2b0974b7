"""`python -m bench`: slb beside its peers; `python -m bench COMMAND`: a figure of slb alone."""

import typer

from bench.command import add_command
from bench.comparison import compare
from bench.figures.before import before
from bench.figures.connections import memory, soak, stream
from bench.figures.discovery import discovery
from bench.figures.dns import dns
from bench.figures.extproc import extproc
from bench.figures.failover import failover
from bench.figures.handoff import handoff
from bench.figures.judge import judge
from bench.figures.kill import kill
from bench.figures.ledger import ledger
from bench.figures.library import client
from bench.figures.page import page
from bench.figures.policy import policy
from bench.figures.register import register
from bench.figures.restarts import outage, rolling
from bench.figures.ring import ring
from bench.figures.routes import routes
from bench.figures.scale import scale
from bench.figures.slow import slow
from bench.figures.trace import trace
from bench.figures.view import view
from bench.gpu.command import gpu
from bench.jobs.cost import jobs
from bench.jobs.crash import jobs_crash
from bench.jobs.shared import jobs_shared
from bench.lab.experiments import simulate
from bench.quota.command import quota
from bench.quota.rate import quota_rate
from bench.sick.command import sick

ALONE = (register, outage, failover, routes, memory, soak, slow, stream, rolling)
SHARED = (
    handoff,
    judge,
    policy,
    before,
    trace,
    ledger,
    kill,
    scale,
    ring,
    client,
    gpu,
    sick,
    quota,
    quota_rate,
    simulate,
    dns,
    extproc,
    discovery,
    view,
    page,
)
JOBS = (jobs, jobs_crash, jobs_shared)

app = typer.Typer(add_completion=False)
add_command(app, compare, default=True)
for command in (*ALONE, *SHARED, *JOBS):
    add_command(app, command)

if __name__ == "__main__":
    app(prog_name="python -m bench")
