"""The table on disk where the disk is in the way; with a Redis behind it, tests/redis/test_fail_open.py."""

import asyncio
import os
import random
import stat
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from slb.config import Settings
from slb.control.disk import DiskTable
from slb.control.history import History
from slb.model import RouteRecord
from slb.routing.mirror import Mirror
from tests.support.waiting import eventually

WHOLE = b"""{"version":2,"generation":"g","floor":5}
{"path":"/p1","members":["a:80"],"settings":{"policy":"p2c"}}
{"path":"/q","members":[],"settings":null}
{"member":"a:80","attributes":{"weight":"2"}}
{"entry":"slb_p1 a:80","number":7}
{"routes":2,"upstreams":1,"changes":1}
"""
SCALARS = (
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.text(max_size=9)
)
ANYTHING = st.recursive(
    SCALARS | st.sampled_from(["/p1", "/q", "a:80", "b:1", "path", "member"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3),
    max_leaves=6,
)


def a_table(file: Path) -> DiskTable:
    return DiskTable(file, Mirror(Settings().route_settings, random.Random(1)))


def told_unusable(file: Path) -> str:
    """Why, as the log has it; the start is none the worse."""
    if file.is_file() and not file.is_symlink() and file.stat().st_mode & 0o022 == 0:
        file.chmod(0o600)
    with capture_logs() as logs:
        assert a_table(file).load() is None
    assert [line["event"] for line in logs] == ["disk_table_unusable"]
    return str(logs[0]["error"])


@pytest.fixture
def blocked(tmp_path: Path) -> Path:
    """A folder for the table in whose place there is a file."""
    path = tmp_path / "data"
    path.write_text("not a folder")
    return path


@pytest.fixture
async def table(blocked: Path) -> AsyncIterator[DiskTable]:
    made = DiskTable(blocked / "table.json", Mirror(Settings().route_settings, random.Random(1)), 0.0, again=0.01)
    writing = asyncio.create_task(made.run())
    yield made
    writing.cancel()


async def test_what_could_not_be_written_is_written_once_it_can_be_though_nothing_changes(
    table: DiskTable, blocked: Path
) -> None:
    with capture_logs() as logs:
        table.changed()
        await eventually(lambda: bool(logs))
        await asyncio.to_thread(blocked.unlink)
        await eventually(lambda: len(logs) > 1)
    assert [line["event"] for line in logs] == ["disk_table_not_written", "disk_table_written"]
    assert table.load() is not None


async def test_a_table_that_is_behind_does_not_become_younger(tmp_path: Path) -> None:
    """Its age is how long ago it was known to be true."""
    folder, away = tmp_path / "data", tmp_path / "away"
    table = DiskTable(folder / "table.json", Mirror(Settings().route_settings, random.Random(1)))
    table.changed()
    await table.flush()
    os.utime(folder / "table.json", (1, 1))
    folder.rename(away)
    folder.write_text("not a folder")
    table.changed()
    with capture_logs() as logs:
        await table.flush()
    assert [line["event"] for line in logs] == ["disk_table_not_written"]
    folder.unlink()
    away.rename(folder)
    table.still_true()
    assert (folder / "table.json").stat().st_mtime == 1


def test_the_table_is_for_its_user_alone(tmp_path: Path) -> None:
    table = a_table(tmp_path / "data" / "table.json")
    before = os.umask(0)
    try:
        table.changed()
        asyncio.run(table.flush())
    finally:
        os.umask(before)
    found = [stat.S_IMODE(each.stat().st_mode) for each in (tmp_path / "data", tmp_path / "data" / "table.json")]
    assert found == [0o700, 0o600]


def test_a_table_that_others_may_write_is_not_served(tmp_path: Path) -> None:
    file = tmp_path / "table.json"
    file.write_bytes(WHOLE)
    file.chmod(0o666)
    assert told_unusable(file).startswith(f"others may write to {file}")


def test_a_folder_or_a_pipe_in_its_place_is_no_table(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("/dev/zero")
    for name in ("folder", "pipe", "link"):
        assert told_unusable(tmp_path / name)


@given(st.data())
def test_a_table_of_any_shape_is_unusable_or_as_sound_as_what_comes_from_redis(
    tmp_path: Path, data: st.DataObject
) -> None:
    """Whatever stands in the file, the start goes on: the mirror takes what is read."""
    lines = [orjson.loads(line) for line in WHOLE.splitlines()]
    for _ in range(data.draw(st.integers(1, 3))):
        _damage(data, lines)
    file = tmp_path / "table.json"
    file.write_bytes(b"\n".join(orjson.dumps(line) for line in lines))
    file.chmod(0o600)
    with capture_logs() as logs:
        kept = a_table(file).load()
    assert [line["event"] for line in logs] == ([] if kept else ["disk_table_unusable"])
    if kept is not None:
        mirror = Mirror(Settings().route_settings, random.Random(1))
        for _ in mirror.replace(kept[0].records, kept[0].attributes):
            pass
        assert mirror.ready
        assert all(isinstance(each, str) for record in mirror.records.values() for each in record.members)


@pytest.mark.parametrize(
    "written",
    [
        *(b"", b"\n", b"[]", b"null", b"1e999", b"9" * 5000, b"{}\n{}", b"\xff\xfe\x00", b"[" * 100_000),
        *(WHOLE.replace(b"/p1", b"/p\xff1"), WHOLE[:-5], WHOLE + WHOLE, b'{"version": 1}\n' + b'{"a":' * 5000),
        *(WHOLE.replace(b'"a:80"', old) for old in (b"null", b"80", b'["a:80"]', b'"a"', b'"A:80"', b'"a:99999"')),
        *(WHOLE.replace(b'"/p1"', old) for old in (b"null", b"1", b'["/p1"]', b'"p1"', b'"/p1/"', b'"/../p1"')),
        WHOLE.replace(b'{"policy":"p2c"}', b'{"policy":{"a":1}}'),
        WHOLE.replace(b'{"policy":"p2c"}', b'["policy"]'),
        WHOLE.replace(b'{"weight":"2"}', b'{"weight":2}'),
        WHOLE.replace(b'{"weight":"2"}', b"null"),
        *(
            WHOLE.replace(b'"floor":5', b'"floor":' + old)
            for old in (b"-1", b'"5"', b"null", b"1e300", b"9999999999999999")
        ),
        *(WHOLE.replace(b'"number":7', b'"number":' + old) for old in (b"-1", b'"7"', b"[]", b"true", b"7.5")),
        WHOLE.replace(b'"slb_p1 a:80"', b"7"),
        WHOLE.replace(b'"g"', b"7"),
    ],
    ids=range(41),
)
def test_a_table_of_wrong_shape_is_logged_and_not_served(tmp_path: Path, written: bytes) -> None:
    file = tmp_path / "table.json"
    file.write_bytes(written)
    assert told_unusable(file)


def test_a_table_of_right_shape_is(tmp_path: Path) -> None:
    file = tmp_path / "table.json"
    file.write_bytes(WHOLE)
    kept = a_table(file).load()
    assert kept is not None
    assert kept[0].records == {"/p1": RouteRecord(frozenset({"a:80"}), {"policy": "p2c"}), "/q": RouteRecord()}
    assert kept[0].attributes == {"a:80": {"weight": "2"}}
    assert kept[0].history == History({"slb_p1 a:80": 7}, floor=5, generation="g")


def _damage(data: st.DataObject, lines: list[Any]) -> None:
    """Put anything in the place of anything."""
    here: Any = lines
    while True:
        keys = list(here) if isinstance(here, dict) else list(range(len(here)))
        if not keys:
            return
        key = data.draw(st.sampled_from(keys))
        if isinstance(here[key], dict | list) and data.draw(st.booleans()):
            here = here[key]
            continue
        here[key] = data.draw(ANYTHING)
        return
