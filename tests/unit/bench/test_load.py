"""What wrk writes, read back."""

import pytest

from bench.measure import CASES, LoadReport
from bench.processes import BenchError

WRK_OUTPUT = """Running 5s test @ http://127.0.0.1:8080/v1/models
  1 threads and 64 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency     2.01ms  310.00us   9.11ms   93.10%
    Req/Sec    31.85k     1.02k   33.40k    74.00%
  159170 requests in 5.01s, 52.21MB read
Requests/sec:  31770.46
Transfer/sec:     10.42MB
bench-report {"requests":159170,"duration_us":5010000,"bytes":54746112,"p50_us":1840,"p99_us":3680,\
"status":0,"connect":0,"read":0,"write":0,"timeout":0}
"""


def test_a_report_gives_counts_seconds_and_latencies_in_microseconds() -> None:
    report = LoadReport.parse(WRK_OUTPUT)
    assert report == LoadReport(159170, 5.01, 1840, 3680, {})


def test_errors_are_kept_by_kind() -> None:
    output = WRK_OUTPUT.replace('"status":0', '"status":12').replace('"timeout":0', '"timeout":3')
    assert LoadReport.parse(output).errors == {"status": 12, "timeout": 3}


@pytest.mark.parametrize("output", ["", "unable to connect to 127.0.0.1:9 Connection refused\n"])
def test_a_wrk_that_came_to_no_end_is_an_error_that_quotes_it(output: str) -> None:
    with pytest.raises(BenchError, match=f"wrk reported nothing: {output.strip()}"):
        LoadReport.parse(output)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_case_ends_with_the_report_and_reads_no_reply_in_lua(case: object) -> None:
    script = case.script()  # type: ignore[attr-defined]
    assert "function done(" in script
    assert "function response" not in script
