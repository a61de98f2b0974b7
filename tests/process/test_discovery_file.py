"""A file of members, followed by real processes."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.process.commands import Commands
from tests.support.valkey import Valkey
from tests.support.waiting import eventually, until


def has(valkey: Valkey) -> Callable[[], Any]:
    async def look() -> set[str]:
        return set(valkey.admin.smembers("slb_p"))  # type: ignore[arg-type]

    return look


async def test_a_file_is_followed_and_one_that_is_malformed_or_gone_changes_nothing(
    slb: Commands, valkey: Valkey, tmp_path: Path
) -> None:
    file = tmp_path / "members.toml"
    file.write_text('"/p" = ["10.0.0.1:80", { target = "10.0.0.2:80", slots = 4, zone = "a" }]')
    valkey.admin.sadd("slb_p", "10.9.9.9:80")
    places = ["--api", "127.0.0.1:0", "--data-dir", str(slb.directory / "data"), "--redis", valkey.url]
    process = await slb.start("discover", "file", str(file), *places)
    assert "serves discovery, API" in await process.first_line()
    await until(has(valkey), lambda found: found == {"10.9.9.9:80", "10.0.0.1:80", "10.0.0.2:80"}, 30.0)
    described = valkey.admin.hgetall("slb:upstream:10.0.0.2:80")
    assert (described["slots"], described["zone"]) == ("4", "a")
    file.write_text('"/p" = ["10.0.0.1:80", "10.0.0.3:x"]')
    await eventually(lambda: "/p[1].target" in process.log.read_text(), 20)
    file.unlink()
    await eventually(lambda: "No such file" in process.log.read_text(), 20)
    file.write_text('"/p" = ["10.0.0.3:80"]')
    await until(has(valkey), lambda found: found == {"10.9.9.9:80", "10.0.0.3:80"}, 30.0)
    await eventually(lambda: process.log.read_text().count("discovery_wrote") == 2)  # said behind the write


@pytest.mark.parametrize("table", ['[discovery.file]\npath = "m.toml"', '[discovery]\nfile.path = "m.toml"'])
async def test_a_file_without_the_role_that_follows_it_is_refused(
    slb: Commands, tmp_path: Path, table: str
) -> None:
    config = tmp_path / "slb.toml"
    config.write_text(table)
    said = await slb.run("check-config", "--config", str(config))
    assert said.code == 1
    assert "discovery_file_path = m.toml: only the role discovery follows it" in said.err + said.out
    config.write_text(f'roles = "proxy,discovery"\n{table}')
    assert (await slb.run("check-config", "--config", str(config))).code == 0
