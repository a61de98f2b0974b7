"""Nothing that is started outlives its owner; and the upstream for machines without nginx."""

import os
import sys
from pathlib import Path

import pytest

from bench.http import ask, send_json
from bench.pods import start_pods
from bench.ports import free_ports
from bench.processes import BenchError, Processes, marked, wait_until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="pins to cores and reads /proc")

START_SECONDS = 20.0
# The grandchild leaves session, parent and working directory, as a daemon does.
DAEMON = """
import os, pathlib, signal
home = pathlib.Path.cwd()
if os.fork() == 0:
    os.setsid()
    if os.fork():
        os._exit(0)
    os.chdir("/")
    (home / "daemon").write_text(str(os.getpid()))
signal.pause()
"""


@pytest.fixture
def core() -> int:
    return min(os.sched_getaffinity(0))


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def test_a_daemon_that_left_its_parent_is_ended_too(tmp_path: Path, core: int) -> None:
    with Processes() as processes:
        running = processes.start(python(DAEMON), core, tmp_path, {})
        wait_until((tmp_path / "daemon").exists, running, START_SECONDS, "starting")
        assert len(marked(tmp_path)) == 2
        processes.stop(running)
        assert marked(tmp_path) == []


def test_a_failure_inside_the_block_ends_everything(tmp_path: Path, core: int) -> None:
    def start_and_fail() -> None:
        with Processes() as processes:
            processes.start(python("import signal; signal.pause()"), core, tmp_path, {})
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        start_and_fail()
    assert marked(tmp_path) == []


def test_a_process_runs_on_the_core_it_was_given(tmp_path: Path, core: int) -> None:
    code = "import os; open('cores', 'w').write(str(os.sched_getaffinity(0)))"
    with Processes() as processes:
        processes.start(python(code), core, tmp_path, {}).process.wait(START_SECONDS)
    assert (tmp_path / "cores").read_text() == str({core})


def test_one_that_ends_instead_of_becoming_ready_is_quoted(tmp_path: Path, core: int) -> None:
    with Processes() as processes:
        running = processes.start(python("raise SystemExit('no such port')"), core, tmp_path, {})
        with pytest.raises(BenchError, match="ended with 1: no such port"):
            wait_until(lambda: False, running, START_SECONDS, "starting")


def test_the_upstream_without_nginx_answers_as_both_and_reads_bodies(tmp_path: Path, core: int) -> None:
    first, second = free_ports(2)
    with Processes() as processes:
        start_pods(processes, tmp_path, "plain", [first, second], core=core)
        assert (ask(first, "/"), ask(second, "/v1/models")) == ((200, str(first)), (200, str(second)))
        send_json("POST", first, "/upload", {"prompt": "x" * 3000})
