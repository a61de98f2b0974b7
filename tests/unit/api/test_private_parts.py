"""What the API's connections lean on in aiohttp besides its documented interface: these names, and no others.

Where a new version of aiohttp lacks one of them, or one of them is no longer needed, this fails: read then what has
changed around it, in aiohttp's web_protocol.py, web_server.py and web_runner.py.
"""

import ast
from pathlib import Path

from aiohttp import web

import slb.api

FILES = ("connection.py", "runner.py", "turns.py")

OF_A_CONNECTION = {
    "_buffer_paused",
    "_close",
    "_force_close",
    "_keepalive",
    "_keepalive_timeout",
    "_lingering_time",
    "_loop",
    "_next_keepalive_close_time",
    "_pause_transport_reading",
    "_reading_paused",
    "_request_count",
    "_resume_reading_for_buffer",
    "_resume_transport_reading",
}
OF_A_SERVER = {"_kwargs", "_loop"}
OF_A_RUNNER = {"_make_server"}


OUR_OWN = {"_replace", "_waiting"}
"""Besides what stands in `__slots__`; the first is every named tuple's."""


def names() -> tuple[set[str], set[str]]:
    """Private names that are used as attributes in the files; and what is defined, or stands as a text, in them."""
    used: set[str] = set()
    own = set(OUR_OWN)
    for file in FILES:
        for node in ast.walk(ast.parse((Path(slb.api.__path__[0]) / file).read_text())):
            if isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.startswith("__"):
                used.add(node.attr)
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                own.add(node.name)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                own.add(node.value)
    return used, own


def test_no_other_private_parts_of_aiohttp_are_used_than_those_that_are_listed() -> None:
    used, own = names()
    listed = OF_A_CONNECTION | OF_A_SERVER | OF_A_RUNNER
    assert used - own == listed - own
    assert listed <= used | own


async def test_aiohttp_has_them() -> None:
    async def answer(request: web.BaseRequest) -> web.Response:
        return web.Response()

    assert [name for name in sorted(OF_A_CONNECTION) if not hasattr(web.RequestHandler, name)] == []
    assert vars(web.Server(answer)).keys() >= OF_A_SERVER
    assert [name for name in OF_A_RUNNER if not hasattr(web.AppRunner, name)] == []
