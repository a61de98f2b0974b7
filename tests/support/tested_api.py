"""The API's own runner behind the fixtures of pytest-aiohttp."""

from aiohttp import web
from aiohttp.test_utils import BaseTestServer, TestClient

Client = TestClient[web.Request, None]


class TestedApi(BaseTestServer):
    """`client: Client = await aiohttp_client(TestedApi(runner))` serves what `make_runner` made. aiohttp's own
    `TestServer` has a runner without slb's limits and refusals."""

    def __init__(self, made: web.AppRunner) -> None:
        super().__init__()
        self._made = made

    async def _make_runner(self, **_: object) -> web.AppRunner:
        return self._made
