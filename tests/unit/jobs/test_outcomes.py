"""Outcomes that Redis did not take."""

import asyncio
import os
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from slb.control.kept_lines import KeptLines
from slb.job import Claimed
from slb.jobs.outcomes import KIND, Outcomes
from slb.jobs.verdict import Move
from tests.support.waiting import eventually

JOB = Claimed("flux", "one", "3", 3, 0, "", "", "")
OTHER = Claimed("flux", "two", "1", 1, 0, "", "", "")
DONE = Move("complete", b'{"url":"\xc3\xa9"}')
AGAIN = Move("retry", b"status 500", 2.5)
ENDED = 1_795_491_245.449


def kept_lines(directory: Path) -> KeptLines:
    return KeptLines(directory, KIND, "redis://here")


def lines_of(file: KeptLines) -> list[bytes]:
    return [line for line in file.path.read_bytes().split(b"\n") if line] if file.path.exists() else []


async def test_an_outcome_is_on_the_disk_until_redis_has_it(tmp_path: Path) -> None:
    file = kept_lines(tmp_path)
    outcomes = Outcomes(file)
    running = asyncio.create_task(outcomes.run())
    for _ in range(3):
        outcomes.keep(JOB, DONE, ENDED)
    outcomes.keep(OTHER, Move("back", b"busy"), ENDED)
    await eventually(lambda: len(lines_of(file)) == 1)
    outcomes.keep(OTHER, AGAIN, ENDED)
    await eventually(lambda: len(lines_of(file)) == 2)
    outcomes.written(JOB)
    outcomes.written(OTHER)
    await eventually(lambda: os.listdir(tmp_path) == [])
    running.cancel()
    await asyncio.wait([running])
    await outcomes.aclose()
    assert os.listdir(tmp_path) == []


async def test_the_next_process_finds_them_and_removes_the_file_once_all_are_written(tmp_path: Path) -> None:
    file = kept_lines(tmp_path)
    before = Outcomes(file)
    before.keep(JOB, DONE, ENDED)
    before.keep(OTHER, AGAIN, ENDED)
    assert await before.flush()
    assert file._fd is not None
    os.write(file._fd, b'["flux","cut","1","comp')
    os.close(file._fd)

    after = Outcomes(kept_lines(tmp_path))
    with capture_logs() as logs:
        await after.recover()
    assert [each["event"] for each in logs] == ["job_outcome_unreadable"]
    found = list(after.found_of("flux"))
    assert [(each.id, each.token, each.move) for each in found] == [("one", "3", DONE), ("two", "1", AGAIN)]
    assert {each.ended for each in found} == {ENDED}
    assert list(after.found_of("flux")) == []
    after.keep(found[0].job, found[0].move, ENDED)  # Redis is away again
    after.written(found[0].job)
    assert await after.flush()
    assert file.path.exists()
    after.written(found[1].job)
    assert await after.flush()
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    "line",
    [
        b"7",
        b"[]",
        b'"abcdefg"',
        b'[["flux"],"one","3","complete","1",0,""]',
        b'["flux",{},"3","complete","1",0,""]',
        b'["flux","one",3,"complete","1",0,""]',
        b'["flux","one","3","explode","1",0,""]',
        b'["flux","one","3",["complete"],"1",0,""]',
        b'["flux","one","3","complete",1,0,""]',
        b'["flux","one","3","retry","1","2.5",""]',
        b'["flux","one","3","retry","1",-1,""]',
        b'["flux","one","3","retry","1",1e300,""]',
        b'["flux","one","3","fall","1",0,null]',
        b'["flux","one","3","complete","\\ud800",0,""]',
        b"\xff",
    ],
)
async def test_a_line_that_is_no_outcome_is_logged_and_passed_over(tmp_path: Path, line: bytes) -> None:
    file = kept_lines(tmp_path)
    before = Outcomes(file)
    before.keep(OTHER, AGAIN, ENDED)
    assert await before.flush()
    assert file._fd is not None
    os.write(file._fd, line + b"\n")
    os.close(file._fd)
    after = Outcomes(kept_lines(tmp_path))
    with capture_logs() as logs:
        await after.recover()
    assert [each["event"] for each in logs] == ["job_outcome_unreadable"]
    assert [(each.id, each.move) for each in after.found_of("flux")] == [("two", AGAIN)]
    assert after._found == {}


async def test_what_an_instance_could_not_write_before_it_ended_is_left(tmp_path: Path) -> None:
    outcomes = Outcomes(kept_lines(tmp_path))
    outcomes.keep(JOB, DONE, ENDED)
    await outcomes.aclose()
    after = Outcomes(kept_lines(tmp_path))
    await after.recover()
    assert [each.id for each in after.found_of("flux")] == ["one"]


async def test_a_disk_that_takes_nothing_is_logged_once_and_tried_again(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    directory.write_text("")
    file = kept_lines(directory)
    outcomes = Outcomes(file)
    with capture_logs() as logs:
        await outcomes.recover()
        outcomes.keep(JOB, DONE, ENDED)
        assert not await outcomes.flush()
        assert not await outcomes.flush()
        directory.unlink()
        assert await outcomes.flush()
    events = [each["event"] for each in logs]
    assert events == ["job_outcomes_not_read", "job_outcomes_not_kept", "job_outcomes_kept"]
    assert len(lines_of(file)) == 1
