"""The work of one case, made before anything is started: how a server falls ill, what is asked, and when."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import cycle, islice
from random import Random
from typing import NamedTuple

from bench.gpu.work import log_normal, poisson_arrivals
from bench.sick.servers import STREAM

SERVERS, PROXIES = 8, 3
PATH = "/v1/completions"
BODY = '{"model":"m","prompt":"once upon a time","max_tokens":64}'
CV = 0.5  # of service times without a trace
GOAL_FAILED, GOAL_OUT, GOAL_SLOW, GOAL_STUCK = 2.0, 5.0, 8.0, 40.0  # per cent, and seconds


@dataclass(frozen=True)
class Kind:
    """How a server is ill, at least for `seconds`. `streams`: all answers come in events. Goals are fewer failures
    than `failed_below` per cent, and to be left out within `out_within` seconds. `slow`: latency shows it; `hangs`:
    only time does."""

    what: str
    seconds: float = 0.0
    streams: bool = False
    failed_below: float | None = None
    out_within: float | None = None
    slow: bool = False
    hangs: bool = False


AT_ONCE = partial(Kind, failed_below=GOAL_FAILED, out_within=GOAL_OUT)
HANGS = partial(Kind, seconds=50.0, out_within=GOAL_STUCK, hangs=True)
KINDS = {
    "500": AT_ONCE("answers 500 at once"),
    "503": Kind("answers 503 to 30 % of the requests at once", failed_below=GOAL_FAILED),
    "hang": HANGS("accepts requests and never answers"),
    "mute": HANGS("sends the head of a stream at once, and none of it", streams=True),
    "slow5": Kind("takes 5 times as long", seconds=14.0, out_within=GOAL_SLOW, slow=True),
    "slow20": Kind("takes 20 times as long", seconds=14.0, out_within=GOAL_SLOW, slow=True),
    "cut": AT_ONCE("begins a stream and cuts the connection in its middle", streams=True),
    "refuse": AT_ONCE("its process has ended"),
    "flap": Kind("answers 500 for 5 s and is well for 5 s, in turn", seconds=15.0),
    "garbage": AT_ONCE("answers what is no HTTP"),
    "full": Kind("is full of other work for 1 s of 2, and then answers 503 with Retry-After"),
}
WELL = Kind("no server is ill")


class Shape(NamedTuple):
    """Slots of a server, and the mean service time in seconds."""

    slots: int
    service: float


SHAPES = {"1": Shape(1, 0.1), "8": Shape(8, 0.2)}
"""Of the servers' time 63 % and 16 % is asked for at 50 requests a second."""


@dataclass(frozen=True)
class Times:
    """Seconds before, during and after the sickness."""

    well: float
    sick: float
    back: float

    @property
    def whole(self) -> float:
        return self.well + self.sick + self.back


@dataclass(frozen=True)
class Case:
    """What every proxy gets alike: requests, when and through which proxy they come, and which server falls ill
    (None: none does)."""

    name: str
    slots: int
    times: Times
    arrivals: Sequence[float]
    requests: Sequence[str]
    to: Sequence[int]
    server: int | None = None

    @property
    def kind(self) -> Kind:
        return KINDS.get(self.name, WELL)


def made_case(name: str, shape: Shape, times: Times, rate: float, seed: int, tokens: Sequence[int]) -> Case:
    """The same for the same seed. `tokens`: of answers; their times are in proportion."""
    rng = Random(f"{seed} {name} {shape.slots}")
    arrivals = poisson_arrivals(rng, rate, times.whole)
    if tokens:
        taken = list(islice(cycle(tokens), len(arrivals)))
        services = [each * shape.service * len(taken) / sum(taken) for each in taken]
    else:
        services = log_normal(rng, shape.service, CV, len(arrivals))
    path = STREAM if KINDS.get(name, WELL).streams else PATH
    requests = [_post(path, service) for service in services]
    to = [rng.randrange(PROXIES) for _ in arrivals]
    return Case(name, shape.slots, times, arrivals, requests, to, rng.randrange(SERVERS) if name in KINDS else None)


def _post(path: str, service: float) -> str:
    return (
        f"POST {path} HTTP/1.1\r\nHost: bench\r\nX-Service-Time: {service:.6f}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(BODY)}\r\n\r\n{BODY}"
    )
