"""Which names in DNS are followed, by what is registered."""

from collections.abc import Iterator

import pytest

from e2e.dns import NameServer
from slb.addresses import AddressRules
from slb.discovery.dns_questions import Questions
from slb.discovery.found import Found, Member
from slb.discovery.registered import RegisteredNames
from slb.model import RouteRecord
from slb.routing.mirror import Mirror
from tests.support.waiting import soon
from tests.unit.discovery.rig import a_mirror, a_record

FLUX, SRV = "dns://flux.test:8000", "dns+srv://_http._tcp.flux.test"


class Registered:
    def __init__(self, names: NameServer) -> None:
        self.mirror: Mirror = a_mirror()
        self.now = 1000.0
        self.changes = 0
        questions, rules = Questions([names.address]), AddressRules([], list)
        self.names = RegisteredNames(self.mirror, questions, rules, lambda: self.now)
        self.names.on_change = self._count
        self.write({"/q": a_record("10.0.0.9:80")})

    def _count(self) -> None:
        self.changes += 1

    def write(self, records: dict[str, RouteRecord | None], **attributes: dict[str, str]) -> None:
        self.mirror.update(records, attributes)

    @property
    def keys(self) -> list[tuple[str, str]]:
        return sorted((each.path, each.name) for each in self.names.sources)


@pytest.fixture
def registered() -> Iterator[Registered]:
    with NameServer("flux.test. 60 IN A 10.0.0.1") as names:
        yield Registered(names)


def test_each_name_of_each_route_is_a_source(registered: Registered) -> None:
    assert (registered.keys, registered.changes) == ([], 0)
    registered.write({"/p": a_record(FLUX, SRV), "/r": a_record(FLUX, "10.0.0.1:80")})
    assert registered.keys == [("/p", SRV), ("/p", FLUX), ("/r", FLUX)]
    registered.write({"/r": a_record(FLUX)})
    assert registered.changes == 1


async def test_a_name_that_is_deregistered_says_that_it_is_gone_until_none_can_miss_it(
    registered: Registered,
) -> None:
    registered.write({"/p": a_record(FLUX)})
    (source,) = registered.names.sources
    found = source.follow()
    assert await soon(anext(found)) == Found({"10.0.0.1:8000": Member()})
    registered.write({"/p": None})
    assert await soon(anext(found)) == Found({}, is_gone=True)
    assert registered.keys == [("/p", FLUX)]
    registered.now += 601
    registered.write({"/q": None})
    assert registered.keys == []
    assert registered.changes == 2


async def test_a_name_that_is_registered_again_is_followed_on(registered: Registered) -> None:
    registered.write({"/p": a_record(FLUX)})
    (source,) = registered.names.sources
    found = source.follow()
    await soon(anext(found))
    registered.write({"/p": None})
    await soon(anext(found))
    registered.write({"/p": a_record(FLUX)})
    assert await soon(anext(found)) == Found({"10.0.0.1:8000": Member()})
    registered.now += 601
    registered.write({"/q": None})
    assert registered.keys == [("/p", FLUX)]


async def test_what_is_set_on_a_name_reaches_its_members(registered: Registered) -> None:
    registered.mirror.update({"/p": a_record(FLUX)}, {FLUX: {"slots": "2"}})
    (source,) = registered.names.sources
    found = source.follow()
    assert (await soon(anext(found))).members == {"10.0.0.1:8000": Member(slots=2)}
    registered.mirror.update({}, {FLUX: {"slots": "4"}})
    assert (await soon(anext(found))).members == {"10.0.0.1:8000": Member(slots=4)}
