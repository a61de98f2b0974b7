"""Listening sockets: bound, listening, held, emptied."""

import socket
import sys

import pytest

from slb.listening import CannotListen, begin_listening, bound_socket, hold_newcomers, listening_socket, waiting

ANY = "127.0.0.1:0"


def test_a_bound_socket_refuses_clients_until_it_listens() -> None:
    with bound_socket(ANY, "listen") as bound:
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(bound.getsockname())
        begin_listening(bound, "listen")
        socket.create_connection(bound.getsockname()).close()


def test_listening_again_on_the_same_address_is_that_error() -> None:
    first = bound_socket(ANY, "listen")
    address = f"127.0.0.1:{first.getsockname()[1]}"
    second = bound_socket(address, "listen")
    begin_listening(first, "listen")
    with first, pytest.raises(CannotListen, match=rf"{address} is in use \(setting listen\)"):
        begin_listening(second, "listen")


def test_all_connections_in_the_queue_are_taken_and_then_none() -> None:
    with listening_socket(ANY, "listen") as bound:
        clients = [socket.create_connection(bound.getsockname()) for _ in range(3)]
        taken = list(waiting(bound))
        assert [peer for _, peer in taken] == [client.getsockname() for client in clients]
        assert list(waiting(bound)) == []
        for one in (*clients, *(accepted for accepted, _ in taken)):
            one.close()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has socket filters")
def test_held_new_connections_do_not_get_through_and_earlier_ones_are_served() -> None:
    with listening_socket(ANY, "listen") as bound:
        early = socket.create_connection(bound.getsockname())
        assert hold_newcomers(bound)
        with socket.socket() as late:
            late.settimeout(0.1)
            with pytest.raises(TimeoutError):
                late.connect(bound.getsockname())
        ((accepted, _),) = waiting(bound)
        bound.close()
        early.sendall(b"hello")
        accepted.settimeout(5)
        assert accepted.recv(5) == b"hello"
        accepted.sendall(b"welcome")
        assert early.recv(7) == b"welcome"
        early.close()
        accepted.close()
