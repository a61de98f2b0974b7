"""Sockets that a process was given: taken by name and by address, each once, and the rest closed."""

import socket
from collections.abc import Iterator

import pytest

from slb.given_sockets import GivenSockets, Place, place_of
from slb.listening import Sockets, wanted_places
from slb.loading import load_settings


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as other:
        yield one, other


def shown(bound: socket.socket) -> str:
    return f"127.0.0.1:{bound.getsockname()[1]}"


def test_one_is_taken_by_its_name_or_by_its_address_and_no_second_time(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    given = GivenSockets([("data", pair[0]), ("", pair[1])])
    assert given.called("api") == []
    assert given.called("data") == [pair[0]]
    assert given.at(place_of(pair[0])) is None
    assert given.at(place_of(pair[1])) is pair[1]
    assert given.at(place_of(pair[1])) is None
    assert given.taken == [*pair]
    assert given.close_the_rest() == []


def test_what_nobody_takes_is_closed(pair: tuple[socket.socket, socket.socket]) -> None:
    given = GivenSockets([("", each) for each in pair])
    places = [place_of(each) for each in pair]
    assert given.at(Place("udp", *places[0][1:])) is None
    assert given.at(Place("tcp", "127.0.0.1", 0)) is None, "any port will do: so none that another has"
    assert given.close_the_rest() == places
    assert [each.fileno() for each in pair] == [-1, -1]


def test_listeners_are_those_that_were_given_and_shared_as_long_as_another_has_them(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    settings = load_settings({"listen": shown(pair[0]), "api": "127.0.0.1:0"}, {}, None)
    with Sockets.bind(settings, GivenSockets([("", pair[0])])) as sockets:
        assert sockets.data == [pair[0]]
        assert sockets.shared == {pair[0]}
        assert not sockets.all_shared()
    settings = load_settings({"listen": "127.0.0.1:1", "api": shown(pair[1])}, {}, None)
    with (
        socket.create_server(("127.0.0.1", 0)) as named,
        Sockets.bind(settings, GivenSockets([("", pair[1]), ("data", named)])) as sockets,
    ):
        assert (sockets.data, sockets.api) == ([named], pair[1])
        assert sockets.all_shared()


def test_a_name_server_has_both_of_an_address_or_makes_the_one_that_is_missing() -> None:
    with socket.create_server(("127.0.0.1", 0)) as stream:
        where = shown(stream)
        settings = load_settings({"roles": "dns", "dns_listen": where, "api": "127.0.0.1:0"}, {}, None)
        assert {place.kind for place in wanted_places(settings)} == {"tcp", "udp"}
        with Sockets.bind(settings, GivenSockets([("", stream)])) as sockets:
            assert [place_of(each).kind for each in sockets.dns] == ["udp", "tcp"]
            assert sockets.shared == {stream}
