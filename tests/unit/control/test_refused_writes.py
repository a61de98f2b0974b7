"""Why Redis refuses to write is logged once, whichever script meets it."""

from redis.exceptions import ResponseError
from structlog.testing import capture_logs

from slb.control.refused_writes import RefusedWrites


def test_a_reason_is_logged_once_whole_and_without_the_script_that_met_it() -> None:
    refused = RefusedWrites()
    reason = "MISCONF Errors writing to the file of script: a: No space left on device"
    with capture_logs() as logs:
        for script in (" script: 1f, on @user_script:3.", " script: 2e, on @user_script:9."):
            with refused.passed_over():
                raise ResponseError(reason + script)
    assert [line["error"] for line in logs] == [reason]
