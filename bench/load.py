"""The load cases, wrk that sends them, and what it reports."""

import json
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bench.errors import BenchError
from bench.peers import find_program

LUA = Path(__file__).parent / "lua"
REPORT = "bench-report "
OUTPUT_TAIL_CHARACTERS = 400
GRACE_SECONDS = 30.0
LOOK_SECONDS = 0.5
ERROR_KINDS = ("status", "connect", "read", "write", "timeout")


@dataclass(frozen=True)
class Case:
    """One kind of load: what is asked for, and the wrk script in `bench/lua/` that asks for it."""

    name: str
    title: str
    path: str

    def script(self) -> str:
        """The text of the wrk script: the case's own part, then the one that writes the report."""
        return (LUA / f"{self.name}.lua").read_text() + (LUA / "report.lua").read_text()


CASES = (
    Case("repeat", "small GET, every head the same", "/v1/models"),
    Case("distinct", "small GET, every head different (a traceparent in each)", "/v1/models"),
    Case("post", "POST of 2 KiB JSON, lengths vary", "/upload"),
    Case("download", "1 MiB replies", "/download"),
    Case("upload", "1 MiB requests", "/upload"),
)


@dataclass(frozen=True)
class LoadReport:
    """One run of wrk. Latencies in microseconds; errors by kind, `status` being neither 2xx nor 3xx."""

    requests: int
    seconds: float
    p50_us: float
    p99_us: float
    errors: dict[str, int]


def parse_report(output: str) -> LoadReport:
    """Find the line that `bench/lua/report.lua` writes. Raises BenchError where wrk came to no end."""
    line = next((line for line in output.splitlines() if line.startswith(REPORT)), None)
    if line is None:
        raise BenchError(f"wrk reported nothing: {output.strip()[-OUTPUT_TAIL_CHARACTERS:]}")
    found = json.loads(line.removeprefix(REPORT))
    errors = {kind: found[kind] for kind in ERROR_KINDS if found[kind]}
    return LoadReport(found["requests"], found["duration_us"] / 1e6, found["p50_us"], found["p99_us"], errors)


class Wrk:
    """wrk with one thread on the load's core: closed loop, so each connection has one request in flight. Raises
    BenchError where it is not installed."""

    def __init__(self, core: int, connections: int) -> None:
        program = find_program("wrk")
        if program is None:
            raise BenchError("wrk is not installed, and all the load comes from it: apt-get install wrk")
        self._argv = ["taskset", "--cpu-list", str(core), program, "-t1", f"-c{connections}", "--timeout", "10s"]

    def run(
        self, case: Case, port: int, seconds: int, home: Path, meanwhile: Callable[[], None] = lambda: None
    ) -> LoadReport:
        """Load `port` for `seconds`, calling `meanwhile` about twice a second."""
        script = home / f"{case.name}.lua"
        script.write_text(case.script())
        argv = [*self._argv, f"-d{seconds}s", "-s", str(script), f"http://127.0.0.1:{port}{case.path}"]
        process = subprocess.Popen(
            argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
        )
        try:
            return parse_report(_output(process, seconds + GRACE_SECONDS, meanwhile))
        finally:
            process.kill()
            process.wait()


def _output(process: subprocess.Popen[str], seconds: float, meanwhile: Callable[[], None]) -> str:
    for _ in range(round(seconds / LOOK_SECONDS)):
        try:
            return process.communicate(timeout=LOOK_SECONDS)[0]
        except subprocess.TimeoutExpired:
            meanwhile()
    raise BenchError("wrk did not end")
