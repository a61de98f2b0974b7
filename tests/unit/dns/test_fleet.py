"""Which addresses are in the answers."""

from collections.abc import Collection

import pytest

from slb.control.instances import DRAINING, InstanceInfo
from slb.dns.fleet import Answered, answered, members, name_servers


def info(id_: str, advertise: str, **fields: str) -> InstanceInfo:
    return InstanceInfo(id_, advertise=advertise, **{"serves": "http", **fields})


A, B = info("a", "10.0.0.1:80"), info("b", "10.0.0.2:80")


def shown(answer: Answered) -> tuple[list[str], str]:
    return sorted(str(each.place) for each in answer.members), answer.mode


def now(known: Collection[InstanceInfo], alive: Collection[str], last: Answered = Answered()) -> Answered:  # noqa: B008
    return answered(members(known), lambda place: str(place) in alive, last)


def test_those_are_in_that_are_ready_and_pass_the_check() -> None:
    drained = info("c", "10.0.0.3:80", state=DRAINING)
    alive = ["10.0.0.1:80", "10.0.0.3:80"]
    assert shown(now([A, B, drained], alive)) == (["10.0.0.1:80"], "live")


def test_where_no_check_passes_those_stay_that_beat_and_do_not_drain() -> None:
    drained = info("c", "10.0.0.3:80", state=DRAINING)
    assert shown(now([A, B, drained], [])) == (["10.0.0.1:80", "10.0.0.2:80"], "unchecked")


def test_where_none_beats_any_more_the_last_ones_stay_until_another_is_live() -> None:
    last = now([A, B], ["10.0.0.1:80"])
    for _ in range(3):
        last = now([], [], last)
        assert shown(last) == (["10.0.0.1:80"], "last_known")
    assert shown(now([B], ["10.0.0.2:80"], last)) == (["10.0.0.2:80"], "live")


def test_before_any_was_ready_one_that_drains_is_better_than_none() -> None:
    assert shown(now([info("c", "10.0.0.3:80", state=DRAINING)], [])) == (["10.0.0.3:80"], "last_known")
    assert shown(now([], [])) == ([], "none")


def test_workers_share_a_place_their_weights_add_up_and_one_that_is_ready_is_enough() -> None:
    workers = [info("a", "10.0.0.1:80", weight="3", state=DRAINING), info("b", "10.0.0.1:80", weight="3")]
    (one,) = members(workers).values()
    assert (one.weight, one.is_ready) == (6, True)
    many = [info(str(index), "10.0.0.1:80", weight="65535") for index in range(3)]
    assert [each.weight for each in members(many).values()] == [65_535]


def test_an_instance_may_advertise_several_addresses() -> None:
    found = members([info("a", "10.0.0.1:80,[fd00::1]:81", zone="z")])
    assert {str(place): each.zone for place, each in found.items()} == {"10.0.0.1:80": "z", "[fd00::1]:81": "z"}


@pytest.mark.parametrize(
    "advertise",
    ["", "x", "host:80", "10.0.0.1", "10.0.0.1:0", "0.0.0.0:80", "224.0.0.1:80", "[::]:80", ",", "\0:1"],
)
def test_what_nobody_can_connect_to_is_passed_over(advertise: str) -> None:
    assert members([info("a", advertise), B]).keys() == members([B]).keys()


@pytest.mark.parametrize("weight", ["", "-1", "x", "0", "1e9", "٣"])
def test_a_weight_that_cannot_be_read_is_one(weight: str) -> None:
    assert [each.weight for each in members([info("a", "10.0.0.1:80", weight=weight)]).values()] == [1]


def test_the_name_servers_are_all_responders_that_do_not_stop() -> None:
    responders = [
        InstanceInfo("1", name_server="10.0.0.9:53"),
        InstanceInfo("2", name_server="10.0.0.8:5353,[fd00::8]:53"),
        InstanceInfo("3", name_server="10.0.0.7:53", state=DRAINING),
    ]
    assert [str(each) for each in name_servers([*responders, A])] == ["10.0.0.8", "10.0.0.9", "fd00::8"]
