"""Ports of the loopback."""

from bench.ports import free_port


def closed_port() -> str:
    """HOST:PORT of a port that nothing listens on."""
    return f"127.0.0.1:{free_port()}"
