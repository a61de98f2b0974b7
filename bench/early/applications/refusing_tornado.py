"""A tornado application that refuses by the head. `python refusing_tornado.py PORT`."""

import asyncio
import sys

from tornado.web import Application, RequestHandler, stream_request_body


@stream_request_body
class Refusing(RequestHandler):  # type: ignore[misc]
    """413 to all, with nothing of the body read."""

    def prepare(self) -> None:
        self.set_status(413)
        self.finish(b"too much")

    def data_received(self, chunk: bytes) -> None:
        """It is thrown away."""


async def main() -> None:
    """Serve until killed."""
    Application([("/.*", Refusing)]).listen(int(sys.argv[1]), "127.0.0.1")
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
