"""Which answers of the API are counted and logged."""

from random import Random

import pytest

from slb.api.replies import Answered
from slb.api_server import ApiServer
from slb.config import Settings
from slb.observe.log import AccessLog
from slb.observe.metrics import Metrics


def answered(path: str = "/routes", reason: str = "", client: str = "10.0.0.1", renews: bool = False) -> Answered:
    return Answered("GET", path, 401 if reason else 200, reason, "id", client, 0.0, renews=renews)


@pytest.mark.parametrize(
    ("answer", "probes", "counted", "logged"),
    [
        (answered(), False, True, True),
        (answered(reason="unauthorized"), False, True, True),
        (answered("/readyz"), False, True, False),
        (answered("/readyz"), True, True, True),
        (answered("/register", renews=True), False, True, False),
        (answered(client=""), True, False, False),
    ],
    ids=["answer", "refusal", "probe", "probe where they are logged", "renewal", "a supervisor's own"],
)
async def test_an_answer_is_counted_and_logged_by_whose_it_is(
    answer: Answered, probes: bool, counted: bool, logged: bool
) -> None:
    lines: list[bytes] = []
    metrics, log = Metrics(), AccessLog("all", Random(1), lines.append)
    server = ApiServer(Settings(), metrics, log)
    server.reconfigure(Settings(access_log_probes=probes))
    server.answered(answer)
    log.flush()
    assert dict(metrics.process.api_requests) == ({(answer.status, answer.reason): 1} if counted else {})
    assert [answer.path.encode() in line for line in lines] == ([True] if logged else [])
