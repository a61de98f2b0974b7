"""Common application servers, which show how they read a path: uvicorn with Starlette on both its parsers, aiohttp,
and Tomcat from Debian's package."""

import asyncio
import os
import re
import subprocess
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Literal
from urllib.parse import quote, unquote_to_bytes

import pytest
import uvicorn
from aiohttp import web
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from tests.proxy.harness import Reply
from tests.support.waiting import eventually

HANDLERS = ("/p1/secret", "/p1", "/admin", "")
"""What the servers have, each with all that is beneath it. It answers with its name and, in `X-Read`, with the path
as its server reads it."""

CATALINA_HOME = Path("/usr/share/tomcat10")

_SERVER_XML = """<Server port="-1"><Service name="Catalina">
<Connector port="0" address="127.0.0.1" protocol="HTTP/1.1"/>
<Engine name="Catalina" defaultHost="localhost"><Host name="localhost" appBase="webapps" autoDeploy="false"
deployOnStartup="false"><Context path="" docBase="ROOT">
<Valve className="org.apache.catalina.valves.rewrite.RewriteValve"/></Context></Host></Engine>
</Service></Server>"""

_WEB_XML = """<web-app xmlns="https://jakarta.ee/xml/ns/jakartaee" version="6.0" metadata-complete="true">
<servlet><servlet-name>files</servlet-name>
<servlet-class>org.apache.catalina.servlets.DefaultServlet</servlet-class></servlet>
<servlet-mapping><servlet-name>files</servlet-name><url-pattern>/</url-pattern></servlet-mapping></web-app>"""

_REWRITE = "RewriteCond %{HTTP:X-Show} 1\nRewriteRule ^(.*)$ /read$1 [R=302,QSD,L]\n"
"""Tomcat's own word for how it reads a path: the valve sees what servlets are mapped by, and redirects there."""

SHOW = {"X_Show": "1"}


class RealServer:
    """`is_literal`: reads a path as it stands, decoded; Tomcat also drops parameters and empty segments and resolves
    dot segments."""

    def __init__(self, name: str, port: int, is_literal: bool = True) -> None:
        self.name = name
        self.member = f"127.0.0.1:{port}"
        self.port = port
        self.is_literal = is_literal

    @staticmethod
    def reading(reply: Reply) -> bytes | None:
        """The path as the server has read it, which was asked with SHOW; None where it was not asked, or refused."""
        path = reply.one("X-Read")
        if path is None and (reply.one("Location") or "").startswith("/read/"):
            path = str(reply.one("Location")).removeprefix("/read")
        return None if path is None else unquote_to_bytes(path)


@contextmanager
def python_servers() -> Iterator[list[RealServer]]:
    """Those in Python, on an event loop in a thread of their own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    made = AsyncExitStack()
    try:
        yield asyncio.run_coroutine_threadsafe(_start(made), loop).result()
    finally:
        asyncio.run_coroutine_threadsafe(made.aclose(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _start(made: AsyncExitStack) -> list[RealServer]:
    return [
        RealServer("aiohttp", await made.enter_async_context(_aiohttp())),
        RealServer("uvicorn on h11", await made.enter_async_context(_uvicorn("h11"))),
        RealServer("uvicorn on httptools", await made.enter_async_context(_uvicorn("httptools"))),
    ]


@asynccontextmanager
async def _aiohttp() -> AsyncIterator[int]:
    application = web.Application()
    for name in HANDLERS:

        async def answer(request: web.Request, name: str = name) -> web.Response:
            return web.Response(text=name, headers={"X-Read": quote(request.path)})

        application.router.add_route("*", f"{name}/{{rest:.*}}", answer)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield runner.addresses[0][1]
    await runner.cleanup()


@asynccontextmanager
async def _uvicorn(parser: Literal["h11", "httptools"]) -> AsyncIterator[int]:
    """It takes signals in a main thread only, which is why it has to be another."""
    config = uvicorn.Config(
        _starlette(), "127.0.0.1", 0, http=parser, ws="none", lifespan="off", log_config=None, access_log=False
    )
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server.serve())
    await eventually(lambda: server.started or serving.done())
    yield server.servers[0].sockets[0].getsockname()[1]
    server.should_exit = True
    await serving


def _starlette() -> Starlette:
    def handler(name: str) -> Route:
        async def answer(request: Request) -> Response:
            return PlainTextResponse(name, headers={"X-Read": quote(request.scope["path"])})

        return Route(f"{name}/{{rest:path}}", answer)

    return Starlette(routes=[handler(name) for name in HANDLERS])


@contextmanager
def tomcat(base: Path) -> Iterator[RealServer]:
    """Tomcat 10 with a CATALINA_BASE of its own in `base`, with a file `x.txt` in the folder of each handler that
    names its owner. Skips where Debian's package is absent."""
    if not (CATALINA_HOME / "bin/bootstrap.jar").exists():
        pytest.skip("no tomcat10 here")
    _lay_out(base)
    command = [
        "java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx64m",
        f"-Dcatalina.home={CATALINA_HOME}", f"-Dcatalina.base={base}", f"-Djava.io.tmpdir={base}/temp",
        "-Dtomcat.util.scan.StandardJarScanFilter.jarsToSkip=*.jar",
        "-cp", f"{CATALINA_HOME}/bin/bootstrap.jar:{CATALINA_HOME}/bin/tomcat-juli.jar",
        "org.apache.catalina.startup.Bootstrap", "start",
    ]  # fmt: skip
    environ = {"PATH": os.environ["PATH"], "LC_ALL": "C"}
    with (base / "out.log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=environ)
    try:
        yield RealServer("tomcat", _port(process, base / "out.log"), is_literal=False)
    finally:
        process.kill()
        process.wait()


def _lay_out(base: Path) -> None:
    root = base / "webapps/ROOT"
    for folder in ("conf", "logs", "temp", "work", "webapps/ROOT/WEB-INF"):
        (base / folder).mkdir(parents=True)
    for name in HANDLERS:
        (root / name[1:]).mkdir(exist_ok=True, parents=True)
        (root / name[1:] / "x.txt").write_text(name)
    (base / "conf/server.xml").write_text(_SERVER_XML)
    (base / "conf/web.xml").write_text(_WEB_XML)
    (root / "WEB-INF/rewrite.config").write_text(_REWRITE)


def _port(process: "subprocess.Popen[bytes]", log: Path) -> int:
    """The port it has chosen, once it has started."""
    waited = threading.Event()
    for _ in range(600):
        text = log.read_text()
        if "Server startup in" in text:
            found = re.search(r'Starting ProtocolHandler \["http-nio-[^"]*-([0-9]+)"', text)
            assert found is not None, text
            return int(found[1])
        assert process.poll() is None, text
        waited.wait(0.1)
    raise AssertionError(f"Tomcat has not started: {log.read_text()}")
