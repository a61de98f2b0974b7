"""A takeover's two ends in one process, by real unix sockets; and what neither lets a stranger do."""

import asyncio
import os
import secrets
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from slb.given_sockets import Place, place_of
from slb.listening import Sockets
from slb.takeover import Claim, Offer, Predecessor, StoppedEarly, TakeoverRefused
from slb.takeover.claim import Vanished, take_over
from slb.takeover.messages import LONGEST, Answer, Hello, Take, short_name
from tests.support.waiting import eventually, soon

HERE = Place("tcp", "127.0.0.1", 7)


@pytest.fixture
def sockets() -> Iterator[Sockets]:
    data, api = (socket.create_server(("127.0.0.1", 0)) for _ in range(2))
    with Sockets([data], api) as made:
        yield made


class Running:
    """What a process that offers its sockets is told."""

    def __init__(self, sockets: Sockets, directory: Path) -> None:
        self.directory = directory
        self.sockets = sockets
        self.shared: list[int] = []
        self.left: list[int] = []
        self.offer = Offer(sockets, "old", lambda: self.shared.append(len(sockets.shared)), self.left.append)
        self.offer.start(directory)

    def places(self) -> set[Place]:
        return {place_of(each) for each in self.sockets.offered()}

    async def claim(self, wanted: set[Place] | None = None) -> Claim:
        claim = await asyncio.to_thread(take_over, self.directory, wanted or self.places())
        assert claim is not None
        return claim

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """As a program that knows the socket; its hello is read."""
        (path,) = self.directory.glob("takeover-*.sock")
        with short_name(path) as name:
            reader, writer = await asyncio.open_unix_connection(name)
        await soon(reader.readline())
        return reader, writer


@pytest.fixture
async def running(sockets: Sockets, tmp_path: Path) -> AsyncIterator[Running]:
    made = Running(sockets, tmp_path / "data")
    yield made
    await made.offer.close()
    assert list(made.directory.glob("takeover-*")) == []


@asynccontextmanager
async def followed(claim: Claim) -> AsyncIterator[Predecessor]:
    predecessor = Predecessor(asyncio.Event(), claim=claim)
    watching = asyncio.create_task(predecessor.watch(lambda: None))
    yield predecessor
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)
    claim.close()


async def test_the_sockets_are_the_same_and_the_old_one_leaves_when_it_is_told(running: Running) -> None:
    claim = await running.claim()
    assert {place_of(each) for each in claim.sockets} == running.places()
    assert all(not os.get_inheritable(each.fileno()) for each in claim.sockets)
    assert (claim.pid, running.shared, running.left) == (os.getpid(), [2], [])
    async with followed(claim) as predecessor:
        await soon(predecessor.replace())
        assert predecessor.gone.is_set()
    assert running.left == [os.getpid()]


async def test_those_alone_are_given_that_are_wanted(running: Running) -> None:
    (data,) = (place_of(each) for each in running.sockets.data)
    claim = await running.claim({data, Place("tcp", "127.0.0.1", 1), Place("udp", *data[1:])})
    assert [place_of(each) for each in claim.sockets] == [data]
    assert running.sockets.shared == set(running.sockets.data)
    claim.close()


async def test_where_nothing_is_wanted_of_it_nothing_happens(running: Running) -> None:
    nothing = {Place("tcp", "127.0.0.1", 1)}
    assert await asyncio.to_thread(take_over, running.directory, nothing) is None
    assert await asyncio.to_thread(take_over, running.directory / "nowhere", running.places()) is None
    assert running.shared == []


async def test_addresses_of_another_network_are_others(tmp_path: Path) -> None:
    hello = Hello(name="x", network="boot/7", places=[HERE]).to_line()
    async with pretender(tmp_path / "data", hello, Answer().to_line()):
        assert await asyncio.to_thread(take_over, tmp_path / "data", {HERE}) is None


async def test_one_that_gives_up_leaves_all_as_it_was_and_the_next_may_come(running: Running) -> None:
    for _ in range(3):
        (await running.claim()).close()
        await eventually(lambda: running.sockets.shared == set())
    assert (running.shared, running.left) == ([2, 0] * 3, [])


async def test_a_second_one_is_refused_by_name_until_the_first_has_given_up(running: Running) -> None:
    first = await running.claim()
    with pytest.raises(TakeoverRefused, match=f"takeover_under_way: process {os.getpid()} is taking over"):
        await running.claim()
    first.close()
    await eventually(lambda: running.sockets.shared == set())
    (await running.claim()).close()


async def test_one_that_says_it_serves_and_is_gone_is_not_believed(running: Running) -> None:
    """The old process was frozen, and hears of it only now."""
    claim = await running.claim()
    claim.connection.sendall(b"ready\n")
    claim.close()
    await eventually(lambda: running.sockets.shared == set())
    assert running.left == []


async def test_where_the_old_one_stops_the_new_one_is_told_and_the_sockets_stay_shared(running: Running) -> None:
    claim = await running.claim()
    async with followed(claim) as predecessor:
        await running.offer.close()
        await soon(predecessor.gone.wait())
        await soon(predecessor.replace())
    assert running.left == []
    assert len(running.sockets.shared) == 2, "else it would hold back the clients of the other"


async def test_what_is_waited_for_ends_with_the_old_one_or_when_this_one_is_asked_to_stop() -> None:
    asked = asyncio.Event()
    predecessor = Predecessor(asked)
    waiting = asyncio.create_task(predecessor.outlive(asyncio.Event().wait()))
    asked.set()
    with pytest.raises(StoppedEarly):
        await soon(waiting)
    asked.clear()
    predecessor.gone.set()
    await soon(predecessor.outlive(asyncio.Event().wait()))


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"\n",
        b"ready\n",
        b"left\n",
        b"{}\n",
        b'{"take": [2]}\n',
        b'{"take": [-1]}\n',
        b'{"take": []}\n',
        b'{"take": ["x"]}\n',
        Take(take=[0] * 250).to_line()[:-1],
        b"[" * 1000 + b"\n",
        b"x" * (LONGEST + 1),
        secrets.token_bytes(100) + b"\n",
    ],
)
async def test_what_is_no_message_of_slb_ends_the_connection_and_nothing_else(
    running: Running, said: bytes
) -> None:
    reader, writer = await running.connect()
    writer.write(said)
    writer.write_eof()
    with suppress(ConnectionResetError):  # it has not read all of it
        assert await soon(reader.read()) == b""
    writer.close()
    assert (running.shared, running.left) == ([], [])
    (await running.claim()).close()


async def test_a_crowd_is_turned_away_and_those_who_say_nothing_do_not_stand_in_the_way(running: Running) -> None:
    crowd = [await running.connect() for _ in range(8)]
    with capture_logs():
        assert await asyncio.to_thread(take_over, running.directory, running.places()) is None
    for _, writer in crowd:
        writer.close()
    await eventually(lambda: len(running.offer._attending) == 0)
    (await running.claim()).close()


async def test_a_process_of_another_user_gets_nothing(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slb.takeover.messages.os.geteuid", lambda: os.getuid() + 1)
    (path,) = running.directory.glob("takeover-*.sock")
    with short_name(path) as name:
        reader, writer = await asyncio.open_unix_connection(name)
    assert await soon(reader.read()) == b""
    writer.close()
    with capture_logs() as log:
        monkeypatch.setattr("slb.takeover.claim.check_own", lambda directory, setting: None)
        assert await asyncio.to_thread(take_over, running.directory, running.places()) is None
    errors = [line["error"] for line in log if line["event"] == "takeover_not_offered"]
    assert ["belongs to the user" in error for error in errors] == [True]


@asynccontextmanager
async def pretender(directory: Path, *lines: bytes) -> AsyncIterator[None]:
    """Another program of this user: it sends one line, another after each that it is sent, and leaves."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for number, line in enumerate(lines):
            if number:
                await reader.readline()
            writer.write(line)
        writer.close()

    await asyncio.to_thread(directory.mkdir, mode=0o700)
    with short_name(directory / "takeover-x.sock") as name:
        server = await asyncio.start_unix_server(serve, name)
    async with server:
        yield


@pytest.mark.parametrize("said", [b"", b"\n", b"{}\n", b"x" * LONGEST, b'{"name": 1}\n'])
async def test_one_that_does_not_say_what_it_has_is_passed_over(tmp_path: Path, said: bytes) -> None:
    async with pretender(tmp_path / "data", said):
        with capture_logs() as log:
            assert await asyncio.to_thread(take_over, tmp_path / "data", {HERE}) is None
    assert [line["event"] for line in log] == ["takeover_not_offered"]


async def test_one_that_dribbles_holds_up_no_start_and_gives_it_no_descriptors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("slb.takeover.claim._PATIENCE", 0.5)
    before = set(os.listdir("/proc/self/fd"))
    ended = threading.Event()
    with short_socket(tmp_path / "data") as listener:

        def dribble() -> None:
            peer, _ = listener.accept()
            with peer, suppress(OSError):
                while not ended.wait(0.05):
                    socket.send_fds(peer, [b" "], [0] * 10)

        dribbling = asyncio.create_task(asyncio.to_thread(dribble))
        try:
            async with asyncio.timeout(20):
                assert await asyncio.to_thread(take_over, tmp_path / "data", {HERE}) is None
        finally:
            ended.set()
            await dribbling
    assert len(set(os.listdir("/proc/self/fd")) - before) < 10


@contextmanager
def short_socket(directory: Path) -> Iterator[socket.socket]:
    directory.mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX) as listener, short_name(directory / "takeover-x.sock") as name:
        listener.bind(name)
        listener.listen()
        yield listener


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (b"", Vanished),
        (b"{\n", Vanished),
        (Answer().to_line(), TakeoverRefused),
        (b'{"refused": "x"}\n', TakeoverRefused),
    ],
)
async def test_one_that_does_not_give_what_it_offers_is_left(
    tmp_path: Path, answer: bytes, error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("slb.takeover.claim.processes.network", lambda: "net")
    hello = Hello(name="x", network="net", places=[HERE]).to_line()
    async with pretender(tmp_path / "data", hello, answer):
        with pytest.raises(error):
            await asyncio.to_thread(take_over, tmp_path / "data", {HERE})


async def test_a_directory_that_others_may_write_to_offers_nothing(sockets: Sockets, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data").chmod(0o777)
    with capture_logs() as log:
        running = Running(sockets, tmp_path / "data")
    assert [line["event"] for line in log] == ["takeover_not_possible"]
    await running.offer.close()
