"""An upstream that stands still, and what is shown of it."""

import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest

from bench.figures.frozen import Fetched, Freeze, busiest, fetched, section, stopped
from bench.lab.model import ZipfKeys
from bench.pods import HIT
from bench.processes import Running
from bench.sending import Plan, Result
from bench.table import Figure
from bench.traffic import NO_REPLY, NOT_CONNECTED
from slb.balance.ring import Ring
from slb.balance.upstream import LiveUpstream
from slb.model import Upstream

FREEZE = Freeze(100.0, 103.0, 8001, 3.0)


def seen(due: float, seconds: float = 0.002, status: int = 200, hit: bool = True, port: int = 8001) -> Fetched:
    return Fetched(due, due + seconds, status, hit, port)


CALM = [seen(97.0), seen(98.0, port=8002), *(seen(100.5) for _ in range(100)), seen(104.0, hit=False)]


def figures(*more: Fetched, name: str = "effective", calm: Sequence[Fetched] = CALM) -> dict[str, Figure]:
    return {figure.what: figure for figure in section(name, [*calm, *more], FREEZE).figures}


def missed(found: dict[str, Figure]) -> list[str]:
    return [what for what, figure in found.items() if figure.met is False]


def test_all_goals_are_met_by_a_run_without_fault() -> None:
    assert missed(figures()) == []


@pytest.mark.parametrize(
    ("more", "what"),
    [
        ([seen(101.0, 2.0)] * 3, "slower than 1 s"),
        ([seen(101.0, status=502)], "failed"),
        ([seen(101.0, status=NO_REPLY)], "failed"),
    ],
)
def test_each_goal_is_missed_by_one_fault(more: Sequence[Fetched], what: str) -> None:
    assert missed(figures(*more)) == [what]


def test_signals_without_a_goal_are_only_told() -> None:
    assert missed(figures(seen(101.0, 2.0), seen(101.0, status=502), name="off")) == []


def test_requests_belong_to_the_stretch_in_which_they_were_due() -> None:
    found = figures(seen(99.99, 4.0), seen(100.0), seen(102.99), seen(103.0, hit=False))
    assert found["begun during the freeze"].value == 102
    assert found["begun before it and held up by it"].value == 1
    assert found["latency before, p99"].value == pytest.approx(4000)
    assert found["from a cache, after"].value == 0


def test_requests_at_the_frozen_one_before_are_counted_for_it() -> None:
    assert figures()["of all requests, at the one to be frozen before"].value == 50.0


def test_nothing_begun_during_the_freeze_is_no_figure_rather_than_a_good_one() -> None:
    assert missed(figures(calm=[seen(97.0)])) == ["slower than 1 s"]


def test_the_busiest_has_the_keys_that_are_asked_for_most() -> None:
    ports = (8001, 8002, 8003)
    zipf = ZipfKeys(100, 3.0, Random(1))  # so steep that the first key decides
    ring = Ring.of(LiveUpstream(Upstream.of(f"127.0.0.1:{port}")) for port in ports)
    assert busiest(ports, zipf) == ring.pick(zipf.keys[0]).spec.port


def test_a_reply_says_from_which_upstream_it_is_and_whether_from_its_cache() -> None:
    plan = Plan(10.0, [1], [0.5, 1.0], ["", ""], [0, 0], 1.0)
    result = Result([200, NOT_CONNECTED], [0.25, 2.0], [0.0, 0.0], [f"8001 {HIT}", ""])
    assert fetched(plan, result) == [
        Fetched(10.5, 10.75, 200, True, 8001),
        Fetched(11.0, 13.0, NOT_CONNECTED, False, 0),
    ]


def test_a_process_that_was_stopped_runs_again(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as process:
        try:
            begun, ended = stopped(Running(process, tmp_path), 0.01)
            assert ended > begun
            process.send_signal(signal.SIGTERM)  # a process that is stopped would not heed it
            assert process.wait(10.0) == -signal.SIGTERM
        finally:
            process.kill()
