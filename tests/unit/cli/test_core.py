"""What a process is called, and what it reports of itself."""

import socket

import pytest

from slb.config import Settings
from slb.identity import instance_name
from slb.listening import Sockets, bound_socket

HOST = socket.gethostname()


@pytest.mark.parametrize(
    ("listen", "where"),
    [
        ("127.0.0.1:0", ":{port}"),
        (":0", ":{port}"),
        ("127.0.0.2:0", "@127.0.0.2:{port}"),
    ],
)
def test_an_instance_is_called_by_host_and_port_and_by_its_address_where_others_share_them(
    listen: str, where: str
) -> None:
    with Sockets([bound_socket(listen, "listen")], bound_socket("127.0.0.1:0", "api")) as sockets:
        port = sockets.data[0].getsockname()[1]
        assert instance_name(Settings(listen=listen), sockets) == HOST + where.format(port=port)
        assert instance_name(Settings(name="box"), sockets) == "box"


def test_without_traffic_it_is_called_by_where_its_api_listens() -> None:
    with Sockets([], bound_socket("127.0.0.3:0", "api")) as sockets:
        port = sockets.api.getsockname()[1]
        assert instance_name(Settings(), sockets) == f"{HOST}@127.0.0.3:{port}"
