"""`bench failover` as its users run it, with real servers, and as small as can be."""

from pathlib import Path

import orjson
import pytest

from tests.process.benches import bench
from tests.support.redis_server import BINARY

pytestmark = pytest.mark.skipif(not BINARY, reason="no redis-server here")


async def test_a_restart_and_a_failover_are_timed_while_no_request_fails(tmp_path: Path) -> None:
    found = tmp_path / "found.json"
    sizes = ["--only", "plain,sentinel", "--times", "1", "--rate", "50"]
    code, out = await bench("failover", *sizes, "--json", str(found))
    assert code == 0, out
    took, asked, goals = orjson.loads(found.read_bytes())["sections"]
    assert [row[1] for row in took["rows"]] == ["kill", "kill", "freeze"]
    assert all(float(row[3]) > 0 for row in took["rows"])
    assert all(int(row[2].replace(",", "")) > 0 for row in asked["rows"])
    failed = [figure for figure in goals["figures"] if "failed" in figure["what"]]
    assert [figure["value"] for figure in failed] == [0] * 6
