"""When it is logged that Redis decides no more."""

from structlog.testing import capture_logs

from tests.unit.admission.gate_rig import CAPPED, Setup
from tests.unit.routing.mirror_rig import A


async def test_a_redis_that_does_not_answer_is_logged_at_once_and_no_further_time() -> None:
    setup = Setup(A, **CAPPED)
    with capture_logs() as logs:
        setup.lane.turns(ready=False)
        assert [line["event"] for line in logs] == ["ledger_local"]
        setup.lane.turns(ready=False)
        setup.lane.turns(error="another")
    assert len(logs) == 1
