"""No other user may write what slb trusts."""

import os
import stat
from pathlib import Path
from types import SimpleNamespace

import pytest
from structlog.testing import capture_logs

from slb.control.private import (
    check_contents,
    check_data_dir,
    check_way_to,
    create_private,
    make_private,
    read_private,
)
from slb.errors import ConfigError

STRANGER = 12345
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    made = tmp_path / "place"
    made.mkdir(mode=0o700)
    return made


def test_a_directory_is_made_for_its_user_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        make_private(tmp_path / "a" / "b", "data_dir")
    finally:
        os.umask(before)
    assert mode(tmp_path / "a" / "b") == 0o700


@pytest.mark.parametrize("loose", [0o755, 0o750, 0o711])
def test_one_that_others_may_read_is_closed_to_them_and_that_is_logged(place: Path, loose: int) -> None:
    (place / "valkey").mkdir()
    (place / "table-0123.json").touch()
    place.chmod(loose)
    with capture_logs() as logs:
        make_private(place, "data_dir")
        make_private(place, "data_dir")
    assert mode(place) == 0o700
    assert [(line["event"], line["path"], line["mode_before"]) for line in logs] == [
        ("closed_to_others", str(place), f"{loose:04o}")
    ]


def test_one_that_holds_what_is_not_slbs_is_left_as_it_is(place: Path) -> None:
    (place / "another-file").touch()
    place.chmod(0o755)
    make_private(place, "data_dir")
    assert mode(place) == 0o755


@pytest.mark.parametrize("loose", [0o777, 0o770, 0o720, 0o702, 0o1777])
def test_one_that_others_may_write_to_is_refused_with_what_to_do(place: Path, loose: int) -> None:
    place.chmod(loose)
    with pytest.raises(ConfigError, match=rf"^data_dir: .*\(mode {loose:04o}\).*chmod go-w {place}") as caught:
        make_private(place, "data_dir")
    assert "\n" not in str(caught.value)
    with pytest.raises(ConfigError):
        check_data_dir(place)
    assert mode(place) == loose


@as_root
def test_one_of_another_user_is_refused(place: Path) -> None:
    os.chown(place, STRANGER, -1)
    with pytest.raises(ConfigError, match=rf"^data_dir: .* the user {STRANGER}: chown {os.geteuid()} {place}"):
        make_private(place, "data_dir")


def test_a_link_is_not_followed(tmp_path: Path, place: Path) -> None:
    (tmp_path / "link").symlink_to(place)
    with pytest.raises(ConfigError, match="symbolic link"):
        make_private(tmp_path / "link", "data_dir")


def test_what_cannot_be_had_is_no_reason_not_to_start(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    check_data_dir(tmp_path / "nowhere")
    check_data_dir(tmp_path / "file")
    check_data_dir(tmp_path / "file" / "below")
    assert not (tmp_path / "nowhere").exists()


@as_root
@pytest.mark.parametrize("name", ["valkey.sock", "users.lock", "appendonlydir/base.aof"])
def test_a_file_of_another_user_is_named(place: Path, name: str) -> None:
    planted = place / name
    planted.parent.mkdir(exist_ok=True)
    planted.touch()
    check_contents(place, "data_dir")
    os.chown(planted, STRANGER, -1)
    with pytest.raises(ConfigError, match=str(planted)):
        check_contents(place, "data_dir")


def test_neither_files_nor_folders_there_may_be_links(place: Path, tmp_path: Path) -> None:
    (place / "appendonlydir").symlink_to(tmp_path)
    with pytest.raises(ConfigError, match="appendonlydir is a link"):
        check_contents(place, "data_dir")


def test_on_the_way_no_other_user_may_put_another_in_its_place(tmp_path: Path) -> None:
    way = tmp_path / "way"
    way.mkdir()
    way.chmod(0o1777)
    check_way_to(way / "place", "data_dir")
    way.chmod(0o777)
    with pytest.raises(ConfigError, match=f"chmod o-w {way}"):
        check_way_to(way / "place", "data_dir")


@as_root
def test_on_the_way_nothing_belongs_to_another_user(tmp_path: Path) -> None:
    """He renames what is below, sticky or not, and puts his own in its place."""
    way = tmp_path / "way"
    (way / "deeper").mkdir(parents=True)
    for loose in (0o755, 0o1777):
        os.chown(way, STRANGER, -1)
        way.chmod(loose)
        with pytest.raises(ConfigError, match=rf"^data_dir: {way} belongs to the user {STRANGER}, .*chown 0 {way}"):
            check_way_to(way / "deeper" / "place", "data_dir")
    os.chown(way, 0, -1)
    check_way_to(way / "deeper" / "place", "data_dir")


@as_root
def test_on_the_way_a_group_may_write_only_if_it_is_ones_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    way = tmp_path / "way"
    way.mkdir()
    way.chmod(0o775)
    check_way_to(way / "place", "data_dir")
    shared = SimpleNamespace(gr_mem=["root", "another"])
    with monkeypatch.context() as patch:
        patch.setattr("slb.control.private.grp.getgrgid", lambda _: shared)
        with pytest.raises(ConfigError, match=f"chmod g-w {way}"):
            check_way_to(way / "place", "data_dir")
    os.chown(way, -1, STRANGER)
    with pytest.raises(ConfigError, match=f"chmod g-w {way}"):
        check_way_to(way / "place", "data_dir")
    way.chmod(0o1775)
    check_way_to(way / "place", "data_dir")


@as_root
def test_links_on_the_way_are_looked_at_and_so_is_where_they_lead(tmp_path: Path) -> None:
    far, middle = tmp_path / "far", tmp_path / "middle"
    (far / "below").mkdir(parents=True)
    middle.mkdir()
    (middle / "second").symlink_to("../far/below")
    (tmp_path / "first").symlink_to(middle / "second")
    place = tmp_path / "first" / "place"
    check_way_to(place, "data_dir")
    for passed in (tmp_path / "first", middle, middle / "second", far, far / "below"):
        os.chown(passed, STRANGER, -1, follow_symlinks=False)
        with pytest.raises(ConfigError, match=f"belongs to the user {STRANGER}"):
            check_way_to(place, "data_dir")
        os.chown(passed, 0, -1, follow_symlinks=False)


def test_a_file_is_made_for_its_user_alone_whatever_stood_there(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("mine")
    file = tmp_path / "file"
    for stands in (lambda: None, lambda: file.symlink_to(elsewhere), lambda: file.write_text("old")):
        file.unlink(missing_ok=True)
        stands()
        with os.fdopen(create_private(file), "wb") as writing:
            writing.write(b"new")
        assert (file.read_bytes(), mode(file), file.is_symlink()) == (b"new", 0o600, False)
    assert elsewhere.read_text() == "mine"


def test_a_file_that_others_may_read_is_closed_to_them(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"x")
    file.chmod(0o644)
    with capture_logs() as logs:
        assert read_private(file)[0] == b"x"
    assert mode(file) == 0o600
    assert [line["event"] for line in logs] == ["closed_to_others"]


def test_a_file_that_others_may_write_or_that_is_none_is_not_read(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"x")
    file.chmod(0o622)
    with pytest.raises(ValueError, match="others may write"):
        read_private(file)
    (tmp_path / "link").symlink_to(file)
    with pytest.raises(OSError, match="link"):
        read_private(tmp_path / "link")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ValueError, match="not a file"):
        read_private(tmp_path / "pipe")


@as_root
def test_one_of_another_user_that_may_not_be_looked_into_is_refused_too(place: Path) -> None:
    place.chmod(0)
    os.chown(place, STRANGER, -1)
    with pytest.raises(ConfigError, match=f"the user {STRANGER}"):
        check_data_dir(place)


def test_whatever_stands_in_a_files_place_none_stays_open(tmp_path: Path) -> None:
    file, folder, pipe, loose = (tmp_path / name for name in ("file", "folder", "pipe", "loose"))
    file.touch(0o600)
    folder.mkdir()
    os.mkfifo(pipe)
    loose.touch()
    loose.chmod(0o666)
    before = os.listdir("/proc/self/fd")
    assert read_private(file)[0] == b""
    for other in (folder, pipe, loose):
        with pytest.raises(ValueError, match=r"not a file|others may write"):
            read_private(other)
    assert os.listdir("/proc/self/fd") == before
