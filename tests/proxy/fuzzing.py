"""Runs a check on whatever is drawn, in one event loop with one proxy, for as long as is asked for.

SLB_FUZZ_SECONDS bounds the tests that do so, together; SLB_FUZZ_SEED chooses other examples than the usual ones.
"""

import asyncio
import os
import time
from collections.abc import Callable, Coroutine
from typing import Any

import uvloop
from hypothesis import HealthCheck, Phase, example, given, seed, settings
from hypothesis import strategies as st

from tests.proxy.rig import Rig
from tests.support import fuzzing

SECONDS = fuzzing.SECONDS / 3
SEED = int(os.environ.get("SLB_FUZZ_SEED", "20261121"))
PER_SECOND = 150
Check = Callable[[Rig, Any], Coroutine[Any, Any, None]]


def fuzz(
    strategy: st.SearchStrategy[Any], check: Check, examples: list[Any], seconds: float = SECONDS, **options: Any
) -> None:
    """`check` everything drawn until the time is over."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        rig = runner.run(Rig().start(**options))
        deadline = time.monotonic() + seconds
        failed: list[Any] = []

        def one(case: Any) -> None:
            if case in failed or (time.monotonic() < deadline and not failed):
                failed.append(case)
                runner.run(check(rig, case))
                failed.pop()

        for each in examples:
            one = example(each)(one)
        try:
            given(strategy)(
                settings(
                    max_examples=max(10, int(seconds * PER_SECOND)),
                    deadline=None,
                    database=None,
                    report_multiple_bugs=False,
                    phases=(Phase.explicit, Phase.generate),
                    suppress_health_check=list(HealthCheck),
                )(seed(SEED)(one))
            )()
            runner.run(rig.stop())
        except BaseException:
            runner.run(rig.abandon())  # an event loop with open connections does not close
            raise
