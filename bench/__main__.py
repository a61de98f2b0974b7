"""`python -m bench`: slb beside its peers; `python -m bench COMMAND`: a figure of slb alone."""

import typer

from bench.command import add_figure, add_job
from bench.comparison import compare
from bench.early.measure import early
from bench.figures.frozen import frozen
from bench.figures.kill import kill
from bench.figures.ledger import ledger
from bench.figures.library import client
from bench.figures.memory import memory
from bench.figures.outage import outage
from bench.figures.policy import policy
from bench.figures.register import register
from bench.figures.ring import ring
from bench.figures.rolling import rolling
from bench.figures.routes import routes
from bench.figures.scale import scale
from bench.figures.slow import slow
from bench.figures.soak import soak
from bench.figures.stream import stream
from bench.gpu.command import gpu
from bench.handoff.command import handoff
from bench.lab.command import simulate
from bench.quota.command import quota
from bench.quota.rate import quota_rate

FIGURES = (register, outage, routes, memory, soak, slow, early, stream, rolling)
FLEETS = (policy, ledger, kill, scale, frozen, ring, client, gpu, simulate)

app = typer.Typer(add_completion=False)
add_figure(app, compare, default=True)
for figure in (*FIGURES, *FLEETS):
    add_figure(app, figure)
for job in (handoff, quota, quota_rate):
    add_job(app, job)

if __name__ == "__main__":
    app(prog_name="python -m bench")
