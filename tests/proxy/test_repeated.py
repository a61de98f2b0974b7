"""Long runs of one or two pieces in each place of a message, up to the limits: the client gets an answer or an
end, and takes no more of slb than messages of that length do.

Judged by bytecodes of slb's own code for each byte that was sent, and by the steps of its patterns, which are counted
before the engine is let loose on what they are given; and another client is answered. SLB_FUZZ_SECONDS and
SLB_FUZZ_SEED as in `fuzzing`.
"""

import asyncio
import importlib
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, ClassVar

import orjson
import pytest
from aiohttp import web
from hypothesis import strategies as st

import slb
from slb.api.bodies import body_of, parsed, read_json, registrations
from slb.api.body_room import BodyRoom
from slb.api.body_room import bounded as bounded_bodies
from slb.api.connection import Rules
from slb.api.quota_bodies import ScheduleBody
from slb.api.runner import make_runner
from slb.api.shortcut import Shortcut
from slb.errors import Refused
from slb.loading import load_settings
from slb.proxy.target import judge_for_api
from tests.proxy.fuzzing import SECONDS, fuzz
from tests.proxy.rig import Rig, send
from tests.support.patterns import pattern_of, patterns_in
from tests.support.steps import TooManySteps, count
from tests.support.waiting import patience

SHARE = SECONDS / 4
pytestmark = pytest.mark.timeout(120 + 10 * SECONDS)

PER_MESSAGE = 30_000
PER_BYTE = 60
"""Bytecodes. Short lines take most, about 20; a square of 64 KB would be thousands of millions."""

STEPS_PER_BYTE = 60
LONGEST_COUNTED = 4_000
"""Bytes: our own matcher is slow, and a square shows itself here as well as in 64 KB."""

ROOT = Path(slb.__file__).parent
PATTERNS = tuple(patterns_in(ROOT).uses)
SIZES = (30, 500, 4_000, 16_000, 65_000)
PIECES = (
    *(b" ", b"\t", b";", b",", b'"', b"\\", b"%", b"/", b".", b"0", b"1", b"9", b"a", b"=", b"&", b":", b"-", b"?"),
    *(
        b"\xff",
        b"\xc3\xa9",
        b"\x01",
        b"\r",
        b"\n",
        b"\r\n",
        b"\r\n\r\n",
        b"\r\n ",
        b"\r\na:b",
        b"\r\nHost: h",
        b"%41",
    ),
    *(
        b"../",
        b"..;/",
        b"=a;",
        b'"\\"',
        b"[",
        b"{",
        b"k=",
        b"&k",
        b"close",
        b"127.0.0.1,",
        b"1\r\na\r\n",
        b"HTTP/1.1",
    ),
    *(b"://", b"@", b"0\r\n", b'{"a":', b"\\u0041", b'"a",'),
)
ENDS = (b"", b"\x01", b"x", b" ", b"\xc3\xa9", b"\r\n\r\n", b'"')
GET, POST = b"GET / HTTP/1.1\r\nHost: h\r\n", b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
FIELDS = (
    b"Host Cookie Connection TE Via Upgrade Expect Content-Length Transfer-Encoding Forwarded Trailer X-Key".split()
)
FIELDS += (
    b"X-Forwarded-For X-Request-Id traceparent tracestate X-Request-Timeout Keep-Alive Date Content-Type".split()
)
REQUESTS = (
    b"%b / HTTP/1.1\r\nHost: h\r\n\r\n",
    b"GET %b HTTP/1.1\r\nHost: h\r\n\r\n",
    b"GET /%b HTTP/1.1\r\nHost: h\r\n\r\n",
    b"GET /?%b HTTP/1.1\r\nHost: h\r\n\r\n",
    b"GET /#%b HTTP/1.1\r\nHost: h\r\n\r\n",
    b"GET http://%b/ HTTP/1.1\r\nHost: h\r\n\r\n",
    b"GET / HTTP/%b\r\nHost: h\r\n\r\n",
    b"GET / HTTP/1.%b",
    b"%bGET / HTTP/1.1\r\nHost: h\r\n\r\n",
    *(GET + name + b":%b\r\n\r\n" for name in (*FIELDS, b"X-A")),
    GET + b"%b: v\r\n\r\n",
    GET + b"X%b\r\n\r\n",
    GET + b"\r\n%b",
    POST + b"%b\r\n",
    POST + b"1%b\r\na\r\n0\r\n\r\n",
    POST + b"1;a=%b\r\na\r\n0\r\n\r\n",
    POST + b'1;a="%b"\r\na\r\n0\r\n\r\n',
    POST + b"0\r\n%b\r\n\r\n",
    POST + b"0\r\nX-T:%b\r\n\r\n",
)
OK, CHUNKS = b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
REPLIES = (
    b"%b",
    b"HTTP/1.1 %b",
    b"HTTP/1.1 200 %b\r\nContent-Length: 0\r\n\r\n",
    OK + b"%b: v\r\nContent-Length: 0\r\n\r\n",
    *(OK + name + b":%b\r\nContent-Length: 0\r\n\r\n" for name in (*FIELDS, b"X-A")),
    b"HTTP/1.1 103 Early\r\nLink:%b\r\n\r\n" + OK + b"Content-Length: 0\r\n\r\n",
    CHUNKS + b"%b\r\n",
    CHUNKS + b"1;a=%b\r\na\r\n0\r\n\r\n",
    CHUNKS + b"0\r\n%b\r\n\r\n",
)
API_HEAD = b"Host: localhost\r\nContent-Type: application/json\r\n"
API = (
    b"POST /schedule HTTP/1.1\r\n" + API_HEAD + b"X-User:%b\r\nContent-Length: 2\r\n\r\n{}",
    b"POST /schedule HTTP/1.1\r\n" + API_HEAD + b"%b: a\r\nContent-Length: 2\r\n\r\n{}",
    b"POST /schedule HTTP/1.1\r\n" + API_HEAD + b"A: a%b\r\nContent-Length: 2\r\n\r\n{}",
    b"POST /%b HTTP/1.1\r\n" + API_HEAD + b"\r\n",
    b"GET /models/%b HTTP/1.1\r\n" + API_HEAD + b"\r\n",
    b"%bPOST /schedule HTTP/1.1\r\n" + API_HEAD + b"Content-Length: 2\r\n\r\n{}",
)
BODIES = (
    *(b"%b", b"[%b]", b'{"%b":1}', b'{"estimated_tokens":%b}', b'{"estimated_tokens":1,"models":["%b"]}'),
    *(b'{"path":"%b","target":"a"}', b'{"path":"/","target":"%b"}', b'{"path":"/","zone":"%b"}'),
)
KEYS = ("header:X-Key", "cookie:k", "query:k", "ip", "path")


@dataclass(frozen=True)
class Run:
    """`place` is a message but for the run, in which the pieces alternate, or follow each other."""

    place: bytes
    one: bytes
    two: bytes
    size: int
    alternating: bool
    end: bytes

    @property
    def repeated(self) -> bytes:
        times = self.size // len(self.one + self.two)
        return (
            (self.one + self.two) * times if self.alternating else self.one * times + self.two * times
        ) + self.end

    @property
    def message(self) -> bytes:
        return self.place.replace(b"%b", self.repeated)


def runs(places: tuple[bytes, ...]) -> st.SearchStrategy[Run]:
    second = st.just(b"") | st.sampled_from(PIECES)
    pieces = st.sampled_from(PIECES)
    return st.builds(
        Run, st.sampled_from(places), pieces, second, st.sampled_from(SIZES), st.booleans(), st.sampled_from(ENDS)
    )


class TooSlow(Exception):
    """A pattern takes too many steps over what it was given."""


class Watched:
    """A pattern whose steps are counted first, once for each text that is longer than those before."""

    slow: ClassVar[list[str]] = []
    longest: ClassVar[dict[tuple[Any, str], int]] = {}
    """Of each pattern and method, in this message."""

    def __init__(self, pattern: "re.Pattern[Any]") -> None:
        self._pattern = pattern

    def __getattr__(self, method: str) -> Any:
        def call(*arguments: Any, **options: Any) -> Any:
            self._count(method, *arguments[method.startswith("sub") :])
            return getattr(self._pattern, method)(*arguments, **options)

        return call

    def _count(self, method: str, text: Any, start: int = 0, end: int = sys.maxsize) -> None:
        text = text[start:end]
        if not self.longest.get((self._pattern, method), -1) < len(text) <= LONGEST_COUNTED:
            return
        self.longest[self._pattern, method] = len(text)
        try:
            count(self._pattern, method, text, PER_MESSAGE + STEPS_PER_BYTE * len(text))
        except TooManySteps:
            self.slow.append(f"{self._pattern.pattern!r}.{method} over {text[:100]!r}, {len(text)} long")
            raise TooSlow from None


@pytest.fixture(autouse=True)
def all_patterns_are_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Watched, "slow", [])
    for module, name in PATTERNS:
        monkeypatch.setattr(importlib.import_module(module), name, Watched(pattern_of(module, name)))


class Counted:
    """Bytecodes of slb's own code so far."""

    def __init__(self) -> None:
        self.steps = 0

    def __call__(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "call":
            if not frame.f_code.co_filename.startswith(str(ROOT)):
                return None
            frame.f_trace_opcodes, frame.f_trace_lines = True, False
        self.steps += 1
        return self


@contextmanager
def bounded(message: bytes) -> Iterator[None]:
    """What is done within takes slb no more than in proportion to the message."""
    counted, before = Counted(), sys.gettrace()
    Watched.longest.clear()
    sys.settrace(counted)
    try:
        yield
    finally:
        sys.settrace(before)
    assert Watched.slow == []
    assert counted.steps <= PER_MESSAGE + PER_BYTE * len(message)


async def check_request(rig: Rig, case: tuple[Run, str]) -> None:
    run, key = case
    rig.route(policy="consistent_hash", hash_key=key)
    middle = len(run.message) // 2
    with bounded(run.message):
        await rig.exchange([run.message[:middle], run.message[middle:]], False, lambda count: True)
        await rig.at_rest()
    await rig.check_clean()


def test_long_runs_in_requests_cost_what_requests_of_their_length_do() -> None:
    cases = st.tuples(runs(REQUESTS), st.sampled_from(KEYS))
    known = [
        (Run(GET + b"X-A:%b\r\n\r\n", b" ", b"", 3_000, True, b"\x01"), "ip"),
        (Run(GET + b"X-Key:%b\r\n\r\n", b" ", b"", 3_000, True, b"a"), "header:X-Key"),
        (Run(GET + b"X-Key: a%b\r\n\r\n", b" ", b"", 3_000, True, b"a"), "header:X-Key"),
        (Run(POST + b"%b\r\n", b"1\r\na\r\n", b"", 65_000, True, b""), "ip"),
        (Run(GET + b"Connection:%b\r\n\r\n", b",", b"", 65_000, True, b""), "ip"),
        (Run(GET + b"X-Forwarded-For:%b\r\n\r\n", b"127.0.0.1,", b"", 65_000, True, b"8.8.8.8"), "ip"),
    ]
    fuzz(cases, check_request, known, SHARE, trusted_proxies="127.0.0.0/8")


async def check_reply(rig: Rig, run: Run) -> None:
    async def play(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        send(writer, run.message)
        return False

    rig.route(first_byte_timeout="100ms", idle_timeout="100ms")
    rig.witness.play = play
    request = b"GET /play HTTP/1.1\r\nHost: h\r\nTE: trailers\r\nConnection: close, TE\r\n\r\n"
    with bounded(run.message):
        await rig.exchange([request], False, lambda count: count > 0)
        await rig.at_rest()
    await rig.check_clean()


def test_long_runs_in_replies_cost_what_replies_of_their_length_do() -> None:
    known = [Run(OK + b"X-A:%b\r\nContent-Length: 0\r\n\r\n", b" ", b"", 3_000, True, b"\x01")]
    fuzz(runs(REPLIES), check_reply, known, SHARE)


async def schedule(body: bytes) -> object:
    return body_of(ScheduleBody, parsed(body)).estimated_tokens


async def register(request: web.Request) -> web.Response:
    try:
        registrations(await read_json(request, 1.0))
    except Refused as refused:
        return web.Response(status=refused.reason.status)
    return web.Response()


async def check_api(_: Rig, case: Run) -> None:
    """On a listener of its own, as it has no state but its connections."""
    app = web.Application(client_max_size=1 << 20, middlewares=[bounded_bodies(BodyRoom())])
    app.router.add_post("/register", register)
    app.router.add_post("/schedule", register)
    settings = load_settings({"head_timeout": "100ms"}, {})
    shortcut = Shortcut({"/schedule": schedule}, lambda: settings, lambda answered: None, {"/schedule": ("quota",)})
    runner = make_runner(app, Rules(settings, judge_for_api, shortcut=shortcut))
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        with bounded(case.message):
            await _ask(runner.addresses[0], case.message)
        assert b" 400 " in (await _ask(runner.addresses[0], with_body(b"{}"), patience(10)))[:20]
    finally:
        await runner.cleanup()


async def _ask(address: Any, message: bytes, seconds: float = 0.2) -> bytes:
    """What is answered within `seconds`, before the connection ends."""
    reader, writer = await asyncio.open_connection(*address[:2])
    try:
        send(writer, message)
        with suppress(ConnectionError, TimeoutError):
            async with asyncio.timeout(seconds):
                return await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError as ended:
        return ended.partial
    finally:
        writer.transport.abort()
    return b""


def with_body(body: bytes, path: bytes = b"/register") -> bytes:
    return b"POST %b HTTP/1.1\r\n%bContent-Length: %d\r\n\r\n%b" % (path, API_HEAD, len(body), body)


@dataclass(frozen=True)
class JsonRun(Run):
    """A run in a JSON body."""

    @property
    def message(self) -> bytes:
        return with_body(super().message, b"/schedule" if b"estimated" in self.place else b"/register")


def test_long_runs_to_the_api_cost_what_requests_of_their_length_do() -> None:
    short = API[2]
    known = [
        Run(short, b"\r\na: bb", b"", 150, True, b"\xc3\xa9"),
        JsonRun(b"[%b", b"[", b"", 65_000, True, b""),
        JsonRun(b"{%b}", b'"a":1,', b"", 65_000, True, b'"b":1'),
    ]
    json = st.builds(
        JsonRun,
        st.sampled_from(BODIES),
        st.sampled_from(PIECES),
        st.just(b"") | st.sampled_from(PIECES),
        st.sampled_from(SIZES),
        st.booleans(),
        st.sampled_from(ENDS),
    )
    fuzz(runs(API) | json, check_api, known, SHARE)


def test_a_body_of_unknown_fields_is_refused_and_not_listed() -> None:
    data = {f"field {each}": 0 for each in range(50_000)}
    message = orjson.dumps(data)
    with bounded(message), pytest.raises(Refused):
        registrations(parsed(message))
