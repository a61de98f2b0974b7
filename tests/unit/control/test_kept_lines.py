"""Lines that outlive their process."""

import os
from pathlib import Path

import pytest

from slb.control.kept_lines import KeptLines
from slb.control.private import IN_DATA_DIR

HERE, THERE = "redis://here", "redis://there"


def ended(kept: KeptLines) -> None:
    """As its process would: the kernel closes the file."""
    assert kept._fd is not None
    os.close(kept._fd)


def test_what_a_process_has_left_is_found_by_the_next_and_not_while_it_lives(tmp_path: Path) -> None:
    one, other = KeptLines(tmp_path / "data", "kept", HERE), KeptLines(tmp_path / "data", "kept", HERE)
    one.append([b"a", b"b"])
    one.append([b"c"])
    assert other.orphans() == []
    ended(one)
    (orphan,) = other.orphans()
    assert orphan.lines == [b"a", b"b", b"c"]
    assert KeptLines(tmp_path / "data", "kept", HERE).orphans() == []  # it is the other's now
    orphan.remove()
    assert not one.path.exists()


def test_what_is_for_another_redis_is_left_to_others(tmp_path: Path) -> None:
    one = KeptLines(tmp_path, "kept", HERE)
    one.append([b"a"])
    ended(one)
    assert KeptLines(tmp_path, "kept", THERE).orphans() == []
    assert len(KeptLines(tmp_path, "kept", HERE).orphans()) == 1


def test_an_empty_file_goes_with_its_process_and_one_with_lines_stays(tmp_path: Path) -> None:
    one, other = KeptLines(tmp_path, "kept", HERE), KeptLines(tmp_path, "kept", HERE)
    for each in (one, other):
        each.append([b"a"])
    one.clear()
    one.close()
    other.close()
    assert (one.path.exists(), other.path.exists()) == (False, True)
    KeptLines(tmp_path, "kept", HERE).close()  # it has none


def test_without_a_line_there_is_no_file_and_the_next_line_makes_another(tmp_path: Path) -> None:
    one = KeptLines(tmp_path, "kept", HERE)
    one.append([b"a"])
    before = one.path
    one.clear()
    assert os.listdir(tmp_path) == []
    one.append([b"b"])
    assert os.listdir(tmp_path) == [one.path.name] != [before.name]
    ended(one)
    assert [each.lines for each in KeptLines(tmp_path, "kept", HERE).orphans()] == [[b"b"]]


def test_an_empty_file_for_another_redis_goes_once_its_process_has_ended(tmp_path: Path) -> None:
    one = KeptLines(tmp_path, "kept", HERE)
    one.append([b"a"])
    assert one._fd is not None
    os.ftruncate(one._fd, 0)
    KeptLines(tmp_path, "kept", THERE).orphans()
    assert one.path.exists()
    ended(one)
    KeptLines(tmp_path, "kept", THERE).orphans()
    assert os.listdir(tmp_path) == []


def test_lines_behind_one_that_was_cut_are_read(tmp_path: Path) -> None:
    one = KeptLines(tmp_path, "kept", HERE)
    one.append([b"a"])
    assert one._fd is not None
    os.write(one._fd, b"cu")
    one.append([b"b"])
    ended(one)
    (orphan,) = KeptLines(tmp_path, "kept", HERE).orphans()
    assert orphan.lines == [b"a", b"cu", b"b"]


def test_a_disk_that_takes_nothing_says_so(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("")
    kept = KeptLines(tmp_path / "data", "kept", HERE)
    with pytest.raises(OSError, match="data"):
        kept.append([b"a"])
    with pytest.raises(OSError, match="data"):
        kept.orphans()


def test_what_jobs_keep_is_slbs_own_in_a_data_directory(tmp_path: Path) -> None:
    assert IN_DATA_DIR.fullmatch(KeptLines(tmp_path, "job-outcomes", HERE).path.name)
