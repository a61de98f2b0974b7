"""A WSGI application that refuses by the head."""

from collections.abc import Callable

StartResponse = Callable[[str, list[tuple[str, str]]], object]


def app(environ: dict[str, object], start_response: StartResponse) -> list[bytes]:
    """413 to all, with nothing of the body read."""
    start_response("413 Content Too Large", [("Content-Length", "8")])
    return [b"too much"]
