"""Calls to GPUs: what is raised, and what the health of an upstream learns. The connection is a status or a
failure."""

from types import SimpleNamespace
from typing import Any

import pytest

from slb.balance.upstream import LiveUpstream
from slb.errors import OVERLOADED, REPLY_TOO_LARGE, UPSTREAM_CONNECT, UPSTREAM_RESET, Refused
from slb.jobs.calling import Calls
from slb.jobs.gpu_call import AnswerTooLarge, GpuRequest
from slb.model import Upstream
from slb.upstreams.call import CallFailed
from tests.support.witness import Recorder


class Gpu:
    """`told`: what its health was told."""

    @property
    def told(self) -> list[str]:
        return [*("refused" for _ in self.witness.refusals), *self.witness.reasons]

    def __init__(self, monkeypatch: pytest.MonkeyPatch, end: int | CallFailed) -> None:
        self.witness = Recorder()
        self.upstream = LiveUpstream(Upstream.of("10.0.0.1:80"), failures=2)
        self.request = GpuRequest(self.upstream, "POST", "/generate", {}, b"1", 1.0, 10)
        pools: Any = SimpleNamespace(of=lambda upstream: upstream)
        self.calls = Calls(pools, self.witness, lambda path: None)

        async def call(*_: object, **__: object) -> Any:
            if isinstance(end, CallFailed):
                raise end
            return SimpleNamespace(status=end, body=b"{}", header=lambda name: "")

        monkeypatch.setattr("slb.jobs.calling.call", call)


@pytest.mark.parametrize(
    ("error", "raised", "told"),
    [
        (CallFailed(UPSTREAM_CONNECT, "x", refused=True), Refused, ["refused", "upstream_connect"]),
        (CallFailed(UPSTREAM_RESET, "x"), Refused, ["upstream_reset"]),
        (CallFailed(OVERLOADED, "x"), Refused, []),
        (CallFailed(REPLY_TOO_LARGE, "x"), AnswerTooLarge, []),
    ],
)
async def test_a_call_that_failed_is_raised_and_counts_for_the_health_of_its_gpu(
    monkeypatch: pytest.MonkeyPatch, error: CallFailed, raised: type[Exception], told: list[str]
) -> None:
    gpu = Gpu(monkeypatch, error)
    with pytest.raises(raised) as caught:
        await gpu.calls(gpu.request)
    assert gpu.told == told
    with pytest.raises(raised) as looked:
        await gpu.calls.look(gpu.request)
    assert gpu.told == told  # a look is no evidence
    for each in (caught.value, looked.value):
        assert not isinstance(each, Refused) or each.reason is error.reason


async def test_another_status_is_evidence_where_the_call_says_which_are_fair(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told = []
    for status in (200, 302, 400, 404, 409, 429, 500, 503):
        gpu = Gpu(monkeypatch, status)
        assert (await gpu.calls(gpu.request._replace(busy=(409, 503), fair=(400,)))).status == status
        told += gpu.told
    assert told == ["302", "404", "429", "500"]


@pytest.mark.parametrize(("status", "failures"), [(200, 0), (499, 0), (500, 2), (503, 2)])
async def test_an_answer_below_500_ends_a_row_of_failures_and_a_look_does_not(
    monkeypatch: pytest.MonkeyPatch, status: int, failures: int
) -> None:
    gpu = Gpu(monkeypatch, status)
    assert (await gpu.calls.look(gpu.request)).status == status
    assert gpu.upstream.failures == 2
    assert (await gpu.calls(gpu.request)).body == b"{}"
    assert gpu.upstream.failures == failures
