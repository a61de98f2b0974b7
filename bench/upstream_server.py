"""A small upstream on uvloop, for machines without nginx: `python -m bench.upstream_server PORT_A PORT_B`."""

import asyncio
import sys

import uvloop

from bench.procstat import MIB
from bench.request_protocol import RequestProtocol

BODY = b'{"id":"cmpl-7f3a9c","object":"text_completion","choices":[{"index":0,"text":"hello"}]}'
RECEIVED = b'{"received":true}'


def reply(name: str, body: bytes, content_type: str = "application/json") -> bytes:
    head = (
        f"HTTP/1.1 200 OK\r\nServer: bench\r\nContent-Type: {content_type}\r\nContent-Length: {len(body)}\r\n"
        f"X-Upstream: {name}\r\nCache-Control: no-store\r\nVary: Accept\r\n\r\n"
    )
    return head.encode() + body


class UpstreamProtocol(RequestProtocol):
    """Answers each request at once; every answer is made beforehand."""

    def __init__(self, answers: dict[bytes, bytes]) -> None:
        super().__init__()
        self._answers = answers

    def on_message_complete(self) -> None:
        self.transport.write(self._answers.get(self.path, self._answers[b"/"]))


async def serve(ports: dict[str, int]) -> None:
    """Listen on the loopback, one upstream a port, until the process is told to stop."""
    loop = asyncio.get_running_loop()
    servers = []
    for name, port in ports.items():
        answers = {
            b"/": reply(name, BODY),
            b"/upload": reply(name, RECEIVED),
            b"/download": reply(name, b"x" * MIB, "application/octet-stream"),
        }
        servers.append(await loop.create_server(lambda a=answers: UpstreamProtocol(a), "127.0.0.1", port))  # type: ignore[misc]
    await asyncio.gather(*(server.serve_forever() for server in servers))


if __name__ == "__main__":
    uvloop.run(serve({"a": int(sys.argv[1]), "b": int(sys.argv[2])}))
