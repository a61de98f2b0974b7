"""The bench's client of early replies, against the plainest of its servers."""

from pathlib import Path

from bench.early.measure import SERVERS, served, status_of_upload
from bench.processes import Processes


def test_a_careful_client_gets_every_reply_to_an_upload_that_is_refused_by_its_head(tmp_path: Path) -> None:
    with Processes() as processes, served(processes, tmp_path / "raw", SERVERS[0]) as port:
        assert [status_of_upload(port) for _ in range(20)] == [413] * 20
