"""Files of certificates: what changes with them, and what is wrong with them."""

import os
import ssl
from pathlib import Path

import pytest

from slb.errors import ConfigError
from slb.observe.metrics import Metrics
from slb.upstreams.tls_files import Pair, log_refused, seen_files


def test_a_file_is_another_once_it_is_written_replaced_or_gone(tmp_path: Path) -> None:
    file, link = tmp_path / "tls.crt", tmp_path / "now"
    file.write_text("one")
    link.symlink_to(file)
    states = [seen_files([link])]
    assert seen_files([link]) == seen_files([file]) == states[0]
    file.write_text("longer")
    states.append(seen_files([link]))
    other = tmp_path / "next.crt"
    other.write_text("longer")
    os.utime(other, ns=(file.stat().st_atime_ns, file.stat().st_mtime_ns))
    link.unlink()
    link.symlink_to(other)
    states.append(seen_files([link]))
    other.unlink()
    states.append(seen_files([link]))
    assert len(set(states)) == 4
    assert states[-1] == ((0, 0, 0),)


@pytest.mark.parametrize(
    ("key", "message"), [("no.key", r"no\.key: No such file"), ("a.crt", r"a\.crt: not a cert")]
)
def test_a_pair_that_cannot_be_used_is_refused_by_name(tmp_path: Path, key: str, message: str) -> None:
    (tmp_path / "a.crt").write_text("nothing")
    pair = Pair(tmp_path / "a.crt", tmp_path / key)
    with pytest.raises(ConfigError, match=message):
        pair.load_into(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))


def test_files_that_are_refused_are_counted() -> None:
    metrics = Metrics()
    log_refused(metrics, "certificate_refused", ConfigError("a.crt: gone"), file="a.crt")
    assert metrics.tls.reload_failures == 1
