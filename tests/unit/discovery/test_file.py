"""A file of members as sources."""

import asyncio
import ipaddress
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from slb.addresses import AddressRules
from slb.discovery.file import MembersFile
from slb.discovery.found import Found, Member
from slb.discovery.members_file import parsed
from tests.support.waiting import eventually, soon

RULES = AddressRules([], lambda: [("127.0.0.1", 9)])
TOML = """
"/models/flux/" = [
  "10.0.0.1:8000",
  { target = "10.0.0.2", slots = 2, weight = 3, zone = "a", node = "n", drain = true },
]
[["/q"]]
target = "https://gpu-1.internal"
"""
JSON = """{"/models/flux": ["10.0.0.1:8000",
 {"target": "10.0.0.2:80", "slots": 2, "weight": 3, "zone": "a", "node": "n", "drain": true}],
 "/q": [{"target": "https://gpu-1.internal:443"}]}"""


def test_toml_and_json_say_the_same() -> None:
    flux = {"10.0.0.1:8000": Member(), "10.0.0.2:80": Member(True, 3, 2, "a", "n")}
    said = {"/models/flux": flux, "/q": {"https://gpu-1.internal:443": Member()}}
    assert parsed(TOML.encode(), False, RULES) == parsed(JSON.encode(), True, RULES) == said


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ('"/p" = ["a" "b"]', "line 1, column"),
        ('"/p" = "10.0.0.1:80"', "/p: has to be a list"),
        ('"p" = []', "p: path 'p' does not start with '/'"),
        ('"/p" = []\n"/p/" = []', "/p/: /p stands there twice"),
        ('"/p" = ["a:80", "10.0.0.1:x"]', r"/p\[1\].target: target '10.0.0.1:x': the port is a number"),
        ('"/p" = ["a:80", "A"]', r"/p\[1\]: a:80 stands there twice"),
        ('"/p" = [{ weight = 1 }]', r"/p\[0\].target: Field required"),
        ('"/p" = [{ target = "a", weight = 0 }]', r"/p\[0\].weight: Input should be greater"),
        ('"/p" = [{ target = "a", wieght = 1 }]', r"/p\[0\].wieght: there is no field of this name"),
        ('"/p" = [7]', r"/p\[0\]: Input should be"),
        ('"/p" = ["dns://flux"]', r"/p\[0\].target: .*the scheme is http or https"),
        ('"/p" = ["169.254.169.254"]', r"/p\[0\]: 169.254.169.254 is link-local"),
        ('"/p" = ["127.0.0.1:9"]', r"/p\[0\]: .*slb's own listener"),
        ("\xff", "codec"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(text: str, where: str) -> None:
    with pytest.raises(ValueError, match=where):
        parsed(text.encode("latin-1"), False, RULES)


@pytest.mark.parametrize(
    ("text", "where"), [("[]", "has to be an object"), ('{"/p": [}', "line 1 column 9"), ("[" * 100_000, "levels")]
)
def test_json_that_is_wrong_is_refused_too(text: str, where: str) -> None:
    with pytest.raises(ValueError, match=where):
        parsed(text.encode(), True, RULES)


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[MembersFile]:
    file = MembersFile(tmp_path / "members.toml", RULES, look_every=0.01)
    task = asyncio.create_task(file.run())
    yield file
    task.cancel()


async def test_a_file_is_followed_by_route_and_what_cannot_be_read_changes_nothing(
    running: MembersFile, tmp_path: Path
) -> None:
    file, changes = tmp_path / "members.toml", list[int]()
    running.on_change = lambda: changes.append(len(running.sources))
    with capture_logs() as logs:
        await eventually(lambda: any(each["event"] == "discovery_file_refused" for each in logs))
        assert "No such file" in logs[0]["error"]
        file.write_text('"/p" = ["10.0.0.1:1"]\n"/q" = ["10.0.0.9:1"]')
        await eventually(lambda: changes == [2])
        found = {each.path: each.follow() for each in running.sources}
        assert await soon(anext(found["/p"])) == Found({"10.0.0.1:1": Member()})
        assert await soon(anext(found["/q"])) == Found({"10.0.0.9:1": Member()})
        waiting = asyncio.ensure_future(anext(found["/p"]))
        file.write_text('"/p" = ["10.0.0.1:1", 3]')
        await eventually(lambda: running.sources[0].asked.trouble != "")
        file.unlink()
        await eventually(lambda: "No such file" in running.sources[0].asked.trouble)
        assert not waiting.done()
        file.write_text('"/p" = ["10.0.0.2:1"]')
        assert await soon(waiting) == Found({"10.0.0.2:1": Member()})
        assert await soon(anext(found["/q"])) == Found({})  # and not gone: it is held back
    assert running.sources[0].asked.trouble == ""
    assert changes == [2]
    refused = [each["error"] for each in logs if each["event"] == "discovery_file_refused"]
    assert len(refused) == 3
    assert "/p[1]" in refused[1]


async def test_a_file_is_read_again_when_other_address_rules_hold(tmp_path: Path) -> None:
    file, rules = tmp_path / "members.json", AddressRules([], list)
    file.write_text('{"/p": ["10.0.0.1:1"]}')
    followed = MembersFile(file, rules, look_every=0.01)
    task = asyncio.create_task(followed.run())
    await eventually(lambda: len(followed.sources) == 1)
    rules.networks = (ipaddress.ip_network("192.168.0.0/16"),)
    followed.look_again()
    await eventually(lambda: "upstream_networks" in followed.sources[0].asked.trouble)
    assert followed.sources[0].name == f"file/{file}"
    task.cancel()
