"""Killed instances: what their clients and upstreams saw, and what is shown of it."""

import asyncio
import math
from random import Random

from bench.figures.kill import DRIFT, LOCAL, counter_in, strangers
from bench.pods import Book, Noting, Schedule, Served
from bench.timers import Timers
from bench.traffic import NO_REPLY, Clients, KeptAlive, get
from tests.support.waiting import eventually

SOON = Schedule(Random(1), 0.01)
NOT_SOON = Schedule(Random(1), 600.0)


class Upstream:
    """One noting pod in the test's own loop."""

    def __init__(self, schedule: Schedule) -> None:
        self.book = Book()
        self._timers = Timers(asyncio.get_running_loop())
        self._pod = Noting("pod", self._timers.at, self.book, schedule)
        self._connections: set[Served] = set()

    async def start(self) -> int:
        """Its port."""
        self._server = await asyncio.get_running_loop().create_server(self._connection, "127.0.0.1", 0)
        return int(self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """Listen no more, and cut off all connections."""
        self._server.close()
        for connection in self._connections:
            connection._transport.abort()
        await eventually(lambda: not self.present)
        self._timers.close()

    @property
    def present(self) -> int:
        return self.book.present["pod"]

    def _connection(self) -> Served:
        served = Served(self._pod)
        self._connections.add(served)
        return served


async def test_an_upstream_has_a_request_until_it_is_answered() -> None:
    upstream = Upstream(SOON)
    door = KeptAlive(await upstream.start(), "/p?0")
    assert [await door.ask() for _ in range(2)] == [200, 200]
    assert (upstream.present, upstream.book.most["pod"]) == (0, 1)
    door.close()
    await upstream.stop()


async def test_an_upstream_no_longer_has_a_request_whose_connection_is_gone() -> None:
    upstream = Upstream(NOT_SOON)
    port = await upstream.start()
    writers = [(await asyncio.open_connection("127.0.0.1", port))[1] for _ in range(2)]
    for writer in writers:
        writer.write(get("/p?0"))
    await eventually(lambda: upstream.present == 2)
    for left, writer in enumerate(reversed(writers)):
        writer.transport.abort()
        await eventually(lambda left=left: upstream.present == 1 - left)  # type: ignore[misc]
    assert upstream.book.most["pod"] == 2
    await upstream.stop()


async def test_clients_keep_their_number_in_flight_and_are_all_answered_in_the_end() -> None:
    upstream = Upstream(SOON)
    clients = Clients([await upstream.start()], "/p", 5, Random(1))
    await clients.start()
    await eventually(lambda: clients.answered > 20)
    await clients.stop()
    assert (clients.in_flight, clients.lost, dict(clients.failed), upstream.book.most["pod"]) == (0, 0, {}, 5)
    await upstream.stop()


async def test_a_request_whose_instance_was_killed_is_lost_and_has_not_failed() -> None:
    dying, living = Upstream(NOT_SOON), Upstream(SOON)
    clients = Clients([await dying.start(), await living.start()], "/p", 8, Random(1))
    await clients.start()
    await eventually(lambda: dying.present == 8, what="all clients at the one that never answers")
    await clients.shut(0)
    await dying.stop()
    await eventually(lambda: clients.lost == 8)
    await clients.stop()
    assert not clients.failed
    await living.stop()


async def test_a_request_without_an_answer_from_a_living_instance_has_failed() -> None:
    upstream = Upstream(NOT_SOON)
    clients = Clients([await upstream.start()], "/p", 1, Random(1))
    await clients.start()
    await eventually(lambda: upstream.present == 1)
    await upstream.stop()
    await eventually(lambda: clients.failed[NO_REPLY] == 1)
    await clients.stop()
    assert clients.answered == clients.lost == 0


def test_a_counter_is_read_from_metrics_and_one_that_is_missing_is_no_figure() -> None:
    text = f"# HELP {DRIFT} x\n# TYPE {DRIFT} counter\n{DRIFT} 3.0\n{DRIFT}_created 1.7e9\n"
    assert counter_in(text, DRIFT) == 3.0
    assert math.isnan(counter_in(text, LOCAL))


def test_a_holder_is_a_stranger_where_no_living_instance_has_its_name() -> None:
    assert strangers(["a-b-1", "a-b-2", "c-1"], {"a-b"}) == 1
