"""Load from wrk, and what it reports."""

import json
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bench.cases import Case
from bench.errors import BenchError

REPORT = "bench-report "
OUTPUT_TAIL_CHARACTERS = 400
GRACE_SECONDS = 30.0


@dataclass(frozen=True)
class LoadReport:
    """One run of wrk. Latencies in microseconds; errors by kind, `status` being neither 2xx nor 3xx."""

    requests: int
    seconds: float
    p50_us: float
    p99_us: float
    errors: dict[str, int]


ERROR_KINDS = ("status", "connect", "read", "write", "timeout")


def parse_report(output: str) -> LoadReport:
    """Find the line that `bench/lua/report.lua` writes. Raises `BenchError` where wrk came to no end."""
    line = next((line for line in output.splitlines() if line.startswith(REPORT)), None)
    if line is None:
        raise BenchError(f"wrk reported nothing: {output.strip()[-OUTPUT_TAIL_CHARACTERS:]}")
    found = json.loads(line.removeprefix(REPORT))
    return LoadReport(
        requests=found["requests"],
        seconds=found["duration_us"] / 1e6,
        p50_us=found["p50_us"],
        p99_us=found["p99_us"],
        errors={kind: found[kind] for kind in ERROR_KINDS if found[kind]},
    )


class Wrk:
    """wrk with one thread on the load's core: closed loop, so each connection has one request in flight."""

    def __init__(self, program: str, core: int, connections: int) -> None:
        self._prefix = [
            "taskset",
            "--cpu-list",
            str(core),
            program,
            "-t1",
            f"-c{connections}",
            "--timeout",
            "10s",
        ]

    def run(
        self, case: Case, port: int, seconds: int, home: Path, meanwhile: Callable[[], None], every: float
    ) -> LoadReport:
        """Load `port` for `seconds`, calling `meanwhile` about `every` so many seconds until wrk ends."""
        script = home / f"{case.name}.lua"
        script.write_text(case.script())
        argv = [*self._prefix, f"-d{seconds}s", "-s", str(script), f"http://127.0.0.1:{port}{case.path}"]
        process = subprocess.Popen(
            argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
        )
        try:
            return parse_report(_output(process, seconds + GRACE_SECONDS, meanwhile, every))
        finally:
            process.kill()
            process.wait()


def _output(process: subprocess.Popen[str], seconds: float, meanwhile: Callable[[], None], every: float) -> str:
    for _ in range(round(seconds / every)):
        try:
            return process.communicate(timeout=every)[0]
        except subprocess.TimeoutExpired:
            meanwhile()
    raise BenchError("wrk did not end")
