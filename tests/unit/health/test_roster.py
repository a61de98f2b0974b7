"""Which checks there are, as routes come, change and go."""

import pytest

from slb.health.roster import Roster, Watched
from tests.unit.health.fleet import Routes


class Fleet(Routes):
    def __init__(self) -> None:
        super().__init__()
        self.added: list[Watched] = []
        self.roster = Roster(self.availability, self.added.append)

    async def follow(self) -> None:
        await self.roster.follow(self.mirror.table)

    def checks(self) -> list[tuple[str, str, int]]:
        """Member, path and uses of every check there is."""
        return sorted((each.upstream.member, each.check.path, each.uses) for each in self.added if each.uses)


@pytest.fixture
def fleet() -> Fleet:
    return Fleet()


async def test_routes_without_a_health_path_have_no_checks(fleet: Fleet) -> None:
    fleet.members("/", 3)
    await fleet.follow()
    assert fleet.added == []


async def test_a_check_lives_while_a_route_asks_for_it(fleet: Fleet) -> None:
    fleet.members("/a", 2, health_path="/h")
    fleet.members("/b", 1, health_path="/h")
    await fleet.follow()
    assert fleet.checks() == [("u1:80", "/h", 2), ("u2:80", "/h", 1)]
    fleet.mirror.update({"/a": None}, {})
    await fleet.follow()
    assert fleet.checks() == [("u1:80", "/h", 1)]
    fleet.mirror.update({"/b": None}, {})
    await fleet.follow()
    assert fleet.checks() == []


async def test_a_draining_upstream_is_not_checked(fleet: Fleet) -> None:
    fleet.members("/", 2, health_path="/h")
    fleet.mirror.update({}, {"u1:80": {"drain": "1"}})
    await fleet.follow()
    assert fleet.checks() == [("u2:80", "/h", 1)]


async def test_other_settings_of_the_route_leave_its_checks_alone(fleet: Fleet) -> None:
    fleet.members("/", 2, health_path="/h")
    await fleet.follow()
    fleet.members("/", 2, health_path="/h", retries="4")
    await fleet.follow()
    assert len(fleet.added) == 2


async def test_an_upstream_that_left_and_came_back_between_two_looks_is_another(fleet: Fleet) -> None:
    fleet.members("/", 1, health_path="/h")
    await fleet.follow()
    fleet.members("/", 0, health_path="/h")
    fleet.members("/", 1, health_path="/h")
    await fleet.follow()
    old, new = fleet.added
    assert (old.uses, new.uses) == (0, 1)
    assert fleet.roster.named(old.key) is new
    assert new.upstream is fleet.live(1)


async def test_a_route_made_anew_that_panics_or_has_left_is_noted(fleet: Fleet) -> None:
    fleet.members("/", 2)
    await fleet.follow()
    for number in (1, 2):
        fleet.live(number).available = False
    fleet.members("/", 2, retries="3")
    await fleet.follow()
    assert fleet.metrics.health.panicking == {"/"}
    assert fleet.metrics.health.panics == {"/": 1}
    fleet.mirror.update({"/": None}, {})
    await fleet.follow()
    assert fleet.metrics.health.panicking == set()
