"""What the bench's upstreams have in common: a connection on which one request comes after another."""

import asyncio
from typing import cast

import httptools


class RequestProtocol(asyncio.Protocol):
    """`on_message_complete` is called when all of a request has come, its body too; `path` is what it asks for."""

    def __init__(self) -> None:
        self.parser = httptools.HttpRequestParser(self)
        self.path = b"/"

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)  # uvloop's has its methods, not its type

    def data_received(self, data: bytes) -> None:
        self.parser.feed_data(data)

    def on_url(self, url: bytes) -> None:
        self.path = url

    def on_message_complete(self) -> None:
        raise NotImplementedError
