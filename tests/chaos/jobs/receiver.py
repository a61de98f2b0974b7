"""`python -m tests.chaos.jobs.receiver PORT BOOK`: takes callbacks. Each is in a file before it is
answered."""

import json
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TextIO

from aiohttp import web


def main(port: str, book: str) -> None:
    """Serve until killed."""
    with Path(book).open("a", buffering=1) as lines:
        app = web.Application()
        app.router.add_post("/done", _taking(lines))
        web.run_app(app, host="127.0.0.1", port=int(port), print=None, handle_signals=False, access_log=None)


def _taking(lines: TextIO) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def take(request: web.Request) -> web.Response:
        lines.write(json.dumps([request.headers["webhook-id"].rpartition(":")[0], await request.json()]) + "\n")
        return web.Response()

    return take


if __name__ == "__main__":
    main(*sys.argv[1:])
