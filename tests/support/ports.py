"""Ports of the loopback."""

import socket


def closed_port() -> str:
    """HOST:PORT of a port that nothing listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"
