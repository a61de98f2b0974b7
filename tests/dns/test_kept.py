"""What a responder keeps on its disk of the instances."""

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from slb.control.instances import InstanceInfo
from slb.dns.kept import KeptInstances

INFOS = [InstanceInfo("a", advertise="10.0.0.1:80", zone="z"), InstanceInfo("b", advertise="10.0.0.2:80")]


def test_what_was_kept_of_one_redis_is_loaded_again(tmp_path: Path) -> None:
    kept = KeptInstances(tmp_path / "data", "redis://one")
    assert kept.load() == []
    kept.keep(INFOS[:1])
    kept.keep(INFOS)
    assert KeptInstances(tmp_path / "data", "redis://one").load() == INFOS
    assert KeptInstances(tmp_path / "data", "redis://other").load() == []
    assert [each.name for each in (tmp_path / "data").iterdir()] == [kept.path.name]
    assert kept.path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("content", [b"", b"[", b"{}", b'[{"id": 7}]', b"\xff"])
def test_a_damaged_file_is_logged_and_none_are_known(tmp_path: Path, content: bytes) -> None:
    kept = KeptInstances(tmp_path, "redis://one")
    kept.path.write_bytes(content)
    kept.path.chmod(0o600)
    with capture_logs() as events:
        assert kept.load() == []
    assert [each["event"] for each in events] == ["dns_instances_unusable"]


def test_a_disk_that_takes_nothing_is_logged_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    kept = KeptInstances(tmp_path / "file", "redis://one")
    with capture_logs() as events:
        kept.keep(INFOS)
        kept.keep(INFOS)
    assert [each["event"] for each in events] == ["dns_instances_not_kept"]
