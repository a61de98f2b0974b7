"""Servers of which one falls ill at a given time, in a process of their own: `python -m bench.sick.servers SLOTS
SEED CONTROL PORT...`. They keep a log of their requests. The port `CONTROL` takes `GET /sick?...` and `GET /log`.

A server has slots and a line before them. A request names how long it takes (`X-Service-Time`, seconds). `/health`
is answered at once and beside the line, `/stream` in events that come over the time that it takes.
"""

import asyncio
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import astuple, dataclass
from functools import partial
from pathlib import Path
from random import Random
from urllib.parse import parse_qs, urlencode, urlsplit
from weakref import WeakSet

import orjson
import uvloop

from bench.http import get_text, wait_until_served
from bench.pods import BACKLOG, READY_SECONDS, Answer, At, Gone, Served, reply
from bench.processes import Processes
from bench.timers import Timers

HEALTH, STREAM = "/health", "/stream"
SLOWNESS = {"slow5": 5.0, "slow20": 20.0}
FAILING_SHARE = 0.3  # of `503`
FLAP_SECONDS, BUSY_SECONDS = 5.0, 1.0  # sick and well in turn; busy for others and free in turn
EVENTS, CUT_AFTER = 4, 2  # in a stream; how many of them come before it is cut
GARBAGE = b"220 this is no HTTP\r\n\r\n"
STREAM_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
EVENT, STREAM_END = b"f\r\ndata: a token\n\n\r\n", b"0\r\n\r\n"


def failure(status: str, more: str = "") -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Length: 0\r\n{more}\r\n".encode()


@dataclass
class Visit:
    """One request, in times of `time.monotonic`: when it came, when it had a slot (None: never), and when it ended
    (None: it has not)."""

    arrived: float
    began: float | None = None
    ended: float | None = None


@dataclass(eq=False)
class Work:
    """A request that is served, or waits for that. `left`: nobody waits for its answer."""

    visit: Visit
    seconds: float
    streams: bool
    answer: Answer
    left: bool = False


class Server:
    """`kind`: how it is ill, empty while it is well."""

    def __init__(
        self, name: str, slots: int, at: At, rng: Random, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.kind, self.visits = "", list[Visit]()
        self._free, self._line = slots, deque[Work]()
        self._at, self._rng, self._clock = at, rng, clock
        self._since = 0.0
        self._stuck: list[Answer] = []
        self._reply = reply(name)

    def fall_ill(self, kind: str) -> None:
        self.kind, self._since = kind, self._clock()

    def get_well(self) -> None:
        """What it never answered ends, as where it is started again."""
        self.kind = ""
        for answer in self._stuck:
            answer(b"")
        self._stuck.clear()

    def take(self, path: bytes, seconds: float, answer: Answer) -> Gone | None:
        if path == HEALTH.encode():
            for piece in self._nonsense() if self.kind == "garbage" else [self._reply]:
                answer(piece)
            return None
        visit = Visit(self._clock())
        self.visits.append(visit)
        if self.kind in ("hang", "mute"):
            if self.kind == "mute":
                answer(STREAM_HEAD)
            self._stuck.append(answer)
            return None
        if pieces := list(self._at_once()):
            visit.ended = visit.arrived
            for piece in pieces:
                answer(piece)
            return None
        work = Work(visit, seconds, path == STREAM.encode(), answer)
        self._line.append(work)
        self._begin()
        return partial(setattr, work, "left", True)

    def _at_once(self) -> Iterator[bytes]:
        """What is answered before the request has been in line; nothing where it is to be served."""
        turn = self._clock() - self._since
        if self.kind == "500" or (self.kind == "flap" and turn % (2 * FLAP_SECONDS) < FLAP_SECONDS):
            yield failure("500 Internal Server Error")
        elif self.kind == "503" and self._rng.random() < FAILING_SHARE:
            yield failure("503 Service Unavailable")
        elif self.kind == "full" and (not self._free or turn % (2 * BUSY_SECONDS) < BUSY_SECONDS):
            yield failure("503 Service Unavailable", f"Retry-After: {BUSY_SECONDS:.0f}\r\n")
        elif self.kind == "garbage":
            yield from self._nonsense()

    @staticmethod
    def _nonsense() -> Iterator[bytes]:
        yield from (GARBAGE, b"")

    def _begin(self) -> None:
        """Give free slots to those that wait. Who has left the line is not served; who leaves later is."""
        while self._free and self._line:
            work = self._line.popleft()
            now = self._clock()
            if work.left:
                work.visit.ended = now
                continue
            self._free -= 1
            work.visit.began = now
            seconds = work.seconds * SLOWNESS.get(self.kind, 1.0)
            if work.streams:
                self._stream(work, now, seconds)
            self._at(now + seconds, partial(self._end, work))

    def _stream(self, work: Work, now: float, seconds: float) -> None:
        work.answer(STREAM_HEAD)
        cut = self.kind == "cut"
        for number in range(1, EVENTS):
            piece = b"" if cut and number > CUT_AFTER else EVENT
            self._at(now + seconds * number / EVENTS, partial(work.answer, piece))

    def _end(self, work: Work) -> None:
        work.visit.ended = self._clock()
        self._free += 1
        work.answer(EVENT + STREAM_END if work.streams else self._reply)
        self._begin()


class Place:
    """Where a server is reached."""

    def __init__(self, server: Server, port: int) -> None:
        self.server, self._port = server, port
        self._connections = WeakSet[Served]()
        self._listener: asyncio.Server

    async def listen(self) -> None:
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_server(self._accepted, "127.0.0.1", self._port, backlog=BACKLOG)

    async def fall_ill(self, kind: str) -> None:
        if kind == "refuse":  # as if the process had ended
            self._listener.close()
            for connection in list(self._connections):
                connection.cut()
        self.server.fall_ill(kind)

    async def get_well(self) -> None:
        if self.server.kind == "refuse":
            await self.listen()
        self.server.get_well()

    def _accepted(self) -> Served:
        connection = Served(self.server)
        self._connections.add(connection)
        return connection


class Control:
    """Makes servers ill and well when it is time, and shows their logs."""

    def __init__(self, places: Sequence[Place], at: At, changes: asyncio.TaskGroup) -> None:
        self._places, self._at, self._changes = places, at, changes

    def take(self, path: bytes, seconds: float, answer: Answer) -> None:
        asked = urlsplit(path.decode())
        shown: object = None
        if asked.path == "/sick":
            words = {name: values[0] for name, values in parse_qs(asked.query).items()}
            place = self._places[int(words["server"])]
            self._at(float(words["since"]), partial(self._change, place, words["kind"]))
            self._at(float(words["until"]), partial(self._change, place, ""))
        elif asked.path == "/log":
            shown = [[astuple(visit) for visit in place.server.visits] for place in self._places]
        answer(reply("control", orjson.dumps(shown)))

    def _change(self, place: Place, kind: str) -> None:
        self._changes.create_task(place.fall_ill(kind) if kind else place.get_well())


class Ward:
    """The servers, as the bench has them: their process is started, and they answer, on return."""

    def __init__(
        self, processes: Processes, home: Path, ports: Sequence[int], control: int, slots: int, seed: str
    ) -> None:
        self._control = control
        words = (slots, seed, control, *ports)
        running = processes.start_module(home, "bench.sick.servers", *words)
        wait_until_served([*ports, control], "/", running, READY_SECONDS)

    def make_ill(self, server: int, kind: str, since: float, until: float) -> None:
        """Number `server`, from one time of `time.monotonic` to another."""
        words = {"server": server, "kind": kind, "since": since, "until": until}
        get_text(self._control, f"/sick?{urlencode(words)}")

    def visits(self) -> list[list[Visit]]:
        """By server, all requests so far."""
        log = orjson.loads(get_text(self._control, "/log"))
        return [[Visit(*each) for each in visits] for visits in log]


async def serve(slots: int, seed: str, control: int, ports: Sequence[int]) -> None:
    """On the loopback, until the process is stopped."""
    loop = asyncio.get_running_loop()
    at = Timers(loop).at
    places = [Place(Server(str(port), slots, at, Random(f"{seed}-{port}")), port) for port in ports]
    for place in places:
        await place.listen()
    async with asyncio.TaskGroup() as changes:
        await loop.create_server(lambda: Served(Control(places, at, changes)), "127.0.0.1", control)
        await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), [int(port) for port in sys.argv[4:]]))
