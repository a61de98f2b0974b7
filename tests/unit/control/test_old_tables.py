"""Tables of Redis URLs that are not used any more."""

import os
import random
import time
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from slb.config import Settings
from slb.control.disk import DiskTable, table_file
from slb.control.old_tables import UNUSED, remove_old_tables
from slb.routing.mirror import Mirror

LONG_AGO = time.time() - UNUSED - 86400


def made(path: Path, modified: float = LONG_AGO) -> Path:
    path.write_text("{}")
    os.utime(path, (modified, modified))
    return path


def test_a_table_of_another_redis_that_was_not_touched_for_a_month_is_removed_and_logged(tmp_path: Path) -> None:
    own, old, recent = (table_file(tmp_path, f"redis://{name}") for name in ("own", "old", "recent"))
    made(own)
    unfinished = made(old.with_name(f"{old.name}.123.456"))
    others = [made(tmp_path / name) for name in ("table-mine.json", "table-0123456789ab.json.bak", "slb.toml")]
    made(old)
    made(recent, time.time() - UNUSED + 86400)
    folder = tmp_path / "table-0123456789ab.json"
    folder.mkdir()
    os.utime(folder, (LONG_AGO, LONG_AGO))
    with capture_logs() as logs:
        assert DiskTable(own, Mirror(Settings().route_settings, random.Random(1))).load() is None
    assert sorted(tmp_path.iterdir()) == sorted([own, recent, folder, *others])
    removed = [(line["file"], line["unused_days"]) for line in logs if line["event"] == "disk_table_removed"]
    assert sorted(removed) == [(str(old), 31), (str(unfinished), 31)]


def test_where_there_is_no_data_directory_yet_nothing_happens(tmp_path: Path) -> None:
    with capture_logs() as logs:
        remove_old_tables(tmp_path / "none" / "table-0123456789ab.json")
    assert logs == []


def test_a_table_that_cannot_be_removed_is_logged_and_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    old = made(table_file(tmp_path, "redis://old"))
    monkeypatch.setattr(Path, "unlink", refused)
    with capture_logs() as logs:
        remove_old_tables(tmp_path / "own.json")
    assert [line["event"] for line in logs] == ["disk_table_not_removed"]
    assert old.exists()
