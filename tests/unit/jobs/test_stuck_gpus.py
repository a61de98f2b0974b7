"""Jobs that a GPU owes: what the judge finds by them. The calls are held by the test; the judge is a real one."""

import asyncio
from collections.abc import AsyncIterator
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
import pytest_asyncio

from slb.balance.upstream import LiveUpstream
from slb.config import Settings
from slb.jobs.calling import Calls
from slb.jobs.gpu_call import GpuRequest
from slb.model import RouteRecord
from slb.observe.metrics import Metrics
from slb.routing import witness
from slb.routing.availability import Availability
from slb.routing.mirror import Mirror
from slb.routing.passive import Passive
from tests.support.waiting import eventually, soon

A, B, C = "10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80"
FLUX, SDXL = "/jobs/flux", "/jobs/sdxl"


class Gpus:
    """A and B run flux, C runs sdxl. `now`: of the judge's clock; `asked`: GPUs that it was asked about while they
    owe a job."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        self.metrics, self.asked = Metrics(), list[str]()
        self.mirror = Mirror(Settings().route_settings, Random(1), lambda: self.now)
        self.route(FLUX, A, B)
        self.route(SDXL, C)
        health = self.metrics.health
        self.judge = Passive(self.mirror, Availability(self.mirror, health), health, lambda: self.now, lambda: None)
        unanswered = self.judge.unanswered

        def asked(upstream: LiveUpstream, *more: Any, **named: Any) -> bool:
            self.asked.append(upstream.member)
            return unanswered(upstream, *more, **named)

        patch.setattr(self.judge, "unanswered", asked)
        patch.setattr(witness, "LOOK_AGAIN", 0.01)
        patch.setattr("slb.jobs.calling.call", self._call)
        pools: Any = SimpleNamespace(of=lambda upstream: upstream)
        self.calls = Calls(pools, self.judge, lambda path: self.mirror.table.routes.get(path), lambda: self.now)
        self._owed: dict[LiveUpstream, list[asyncio.Future[int]]] = {}
        self.running: list[asyncio.Task[Any]] = []

    def route(self, path: str, *members: str, **settings: str) -> None:
        self.mirror.update({path: RouteRecord(frozenset(members), {"eject_slow": "false", **settings})}, {})
        self.mirror.table.routes[path].first_look = 0.01

    async def _call(self, upstream: LiveUpstream, *_: Any, **__: Any) -> Any:
        owed: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._owed.setdefault(upstream, []).append(owed)
        return SimpleNamespace(status=await owed, body=b"{}", header=lambda name: "")

    async def begin(self, member: str, path: str = FLUX, method: str = "POST", look: bool = False) -> None:
        upstream = self.mirror.upstreams[member]
        request = GpuRequest(upstream, method, "/x", {}, b"", 600.0, 100, route=path)
        before = len(self._owed.get(upstream, ()))
        self.running.append(asyncio.create_task(self.calls.look(request) if look else self.calls(request)))
        await eventually(lambda: len(self._owed.get(upstream, ())) > before)

    async def end(self, member: str, status: int = 200) -> None:
        """The one that has waited longest there."""
        owed = self._owed[self.mirror.upstreams[member]]
        pending = [each for each in self.running if not each.done()]
        owed.pop(0).set_result(status)
        await soon(asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED))

    async def run(self, member: str, seconds: float, **more: Any) -> None:
        await self.begin(member, **more)
        self.now += seconds
        await self.end(member)

    async def is_asked(self, member: str) -> None:
        """Return once the judge was asked of it twice more."""
        before = self.asked.count(member)
        await eventually(lambda: self.asked.count(member) >= before + 2, what=f"nobody asks of {member}")

    def serving(self, path: str = FLUX) -> set[str]:
        return {each.member for each in self.mirror.table.routes[path].serving}

    @property
    def ejections(self) -> dict[Any, int]:
        return dict(self.metrics.health.ejections)


@pytest_asyncio.fixture
async def gpus(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Gpus]:
    made = Gpus(monkeypatch)
    yield made
    for each in made.running:
        each.cancel()
    await asyncio.gather(*made.running, return_exceptions=True)


async def test_one_that_owes_a_job_while_another_has_done_its_own_is_stuck(gpus: Gpus) -> None:
    await gpus.run(B, 2.0)
    await gpus.begin(A)
    gpus.now += 31
    await gpus.is_asked(A)
    assert gpus.serving() == {A, B}  # nobody has done any meanwhile
    await gpus.run(B, 2.0)
    await eventually(lambda: gpus.serving() == {B})
    assert gpus.ejections == {(A, "stuck"): 1}
    assert not gpus.running[1].done()  # the job has the time that it has
    await gpus.end(A)
    assert gpus.running[1].result().status == 200


async def test_ten_times_as_long_as_the_models_jobs_take_is_not_too_long(gpus: Gpus) -> None:
    await gpus.run(B, 60.0)
    await gpus.begin(A)
    gpus.now += 500
    await gpus.run(B, 60.0)
    await gpus.is_asked(A)
    assert gpus.serving() == {A, B}
    gpus.now += 60
    await eventually(lambda: gpus.serving() == {B})


async def test_gpus_of_another_model_are_not_compared_with(gpus: Gpus) -> None:
    await gpus.run(B, 2.0)
    await gpus.begin(A)
    gpus.now += 31
    await gpus.run(C, 2.0, path=SDXL)
    await gpus.is_asked(A)
    assert gpus.serving() == {A, B}


async def test_nobody_is_asked_before_it_is_known_how_long_a_job_takes(gpus: Gpus) -> None:
    await gpus.begin(A)
    await gpus.run(C, 2.0, path=SDXL)
    await gpus.begin(C, path=SDXL)
    gpus.now += 300
    await gpus.is_asked(C)
    assert A not in gpus.asked
    await gpus.run(B, 2.0)
    await eventually(lambda: gpus.serving() == {B})


async def test_answers_to_questions_are_signs_of_life_and_looks_are_none(gpus: Gpus) -> None:
    await gpus.run(B, 2.0)
    await gpus.begin(A)
    gpus.now += 20
    upstream = gpus.mirror.upstreams[A]
    polled, looked = GpuRequest(upstream, "GET", "/p", {}, b"", 1.0, 100, route=FLUX), upstream.alive_at
    for look in (True, False):
        asking = asyncio.create_task(gpus.calls.look(polled) if look else gpus.calls(polled))
        await eventually(lambda: len(gpus._owed[upstream]) == 2)
        gpus._owed[upstream].pop().set_result(200)
        await soon(asking)
        assert (upstream.alive_at == looked) is look
    gpus.now += 20
    await gpus.run(B, 2.0)
    await gpus.is_asked(A)
    assert gpus.serving() == {A, B}
    gpus.now += 20
    await gpus.run(B, 2.0)
    await eventually(lambda: gpus.serving() == {B})


async def test_a_question_says_nothing_of_how_long_jobs_take(gpus: Gpus) -> None:
    await gpus.run(B, 60.0)
    for _ in range(5):
        await gpus.run(B, 0.01, method="GET")
    assert gpus.mirror.table.routes[FLUX].pace.usual == 60.0
    await gpus.begin(A, method="GET")
    await gpus.begin(B)
    await gpus.is_asked(B)
    assert A not in gpus.asked


async def test_a_table_that_changes_meanwhile_changes_nothing(gpus: Gpus) -> None:
    await gpus.begin(A)
    gpus.route(FLUX, A, B, eject_time="1h")
    await gpus.run(B, 2.0)
    gpus.now += 31
    await gpus.run(B, 2.0)
    await eventually(lambda: gpus.serving() == {B})


async def test_failures_of_jobs_count_on_the_route_of_their_model(gpus: Gpus) -> None:
    for _ in range(5):
        await gpus.begin(A)
        await gpus.end(A, 500)
    assert gpus.ejections == {(A, "500"): 1}
