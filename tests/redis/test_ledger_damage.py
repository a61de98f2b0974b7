"""What a hand has damaged is put right from what instances hold, and logged; no request gets an error."""

import asyncio
import json
import math
from contextlib import suppress
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from redis import Redis
from redis.exceptions import ResponseError

from slb.balance.asking import Turn
from slb.control.granted import Granted
from tests.redis.ledger_rig import NAMES, POOL, SHORT, Books, Instance, Request, upstreams
from tests.support.valkey import Valkey
from tests.support.waiting import eventually

TURN = Turn("normal", 3, 100)
ONE = upstreams(1, 1)
GARBAGE = [
    "",
    "nonsense",
    "[]",
    "{}",
    "null",
    "[1]",
    "nan",
    "-1",
    "1e400",
    "[NaN,1,1,1,1,1]",
    '[1,"a",0,"/p",[],1]',
]
HASHES = ("held:a-1", "tickets", "classes", "views", "grants")


pytestmark = pytest.mark.usefixtures("often_reaping")


def key_of(books: Books, name: str) -> str:
    start, colon, rest = name.partition(":")
    return books.key[start + colon] + rest


async def is_whole_again(books: Books, one: Instance, asked: list[Request]) -> None:
    """Nothing is refused, all tickets are served one after another, and nothing is left in the end."""

    def is_served() -> bool:
        """What is handed back, maybe only now, is brought again, as a gate does."""
        if one.lane.state.ready and not one.lane.settling:
            handed_back, one.undecided = [each for each in one.undecided if each in asked], []
            for each in handed_back:
                asked[asked.index(each)] = one.ask(ONE, TURN)
        return any(each.answer.done() for each in asked)

    asked = list(asked)
    for _ in range(len(asked)):
        if one.lane.held["u0"]:
            one.lane.release("u0")
        await eventually(is_served, what="the next is served")
        served = next(each for each in asked if each.answer.done())
        assert served.answer.result() == "u0"
        asked.remove(served)
    await books.score({"u0": 1})
    one.lane.release("u0")
    await books.score({})
    await eventually(lambda: not books.tickets() and not books.grants(), what="nothing waits")


@pytest.mark.parametrize("name", [*(name for name in NAMES if not name.endswith(":")), "held:a-1"])
async def test_a_key_of_another_type_is_mended_and_counted(valkey: Valkey, name: str) -> None:
    books = Books(valkey)
    async with Instance(valkey, "a") as one:
        assert await one.get(ONE, TURN) == "u0"
        asked = [await one.queue(ONE, TURN) for _ in range(3)]
        with books.redis.pipeline() as pipe:
            pipe.delete(key_of(books, name))
            pipe.sadd(key_of(books, name), "a", "set")
            pipe.execute()
        await eventually(lambda: one.metrics.ledger.repaired >= 1, what="counted")
        await is_whole_again(books, one, asked)


@pytest.mark.parametrize("name", ["view:", "loads:", "places:", "line:", "lines:", "heads:", "granted:"])
async def test_what_is_kept_to_find_the_next_is_made_anew_where_it_is_of_another_type(
    valkey: Valkey, name: str
) -> None:
    books = Books(valkey)
    async with Instance(valkey, "a") as one:
        assert await one.get(ONE, TURN) == "u0"
        asked = [await one.queue(ONE, TURN) for _ in range(3)]
        if name in {"loads:", "places:"}:  # those of a view where all are full are not there
            of_type = books.key[name] + books.redis.zrange(books.key["live"], 0, 0)[0]
        else:
            start = books.key[name]
            found = [key for key in books.redis.keys("slb:{/p}:*") if key.startswith(start)]
            of_type = found[0] if found else start + "a-1"
        with books.redis.pipeline() as pipe:
            pipe.delete(of_type)
            pipe.sadd(of_type, "a", "set")
            pipe.execute()
        await eventually(lambda: one.metrics.ledger.repaired >= 1, what="counted")
        await is_whole_again(books, one, asked)


async def test_a_class_of_another_type_is_mended_before_and_while_tickets_wait_in_it(valkey: Valkey) -> None:
    books = Books(valkey)
    line = books.key["class:"] + "normal"
    async with Instance(valkey, "a") as one:
        books.redis.set(line, "nonsense")
        assert await one.get(ONE) == "u0"
        asked = [one.ask(ONE, TURN)]
        await eventually(lambda: one.metrics.ledger.repaired == 1 and one.lane.state.ready, what="mended")
        asked = [await one.queue(ONE, TURN) for _ in range(3)] + [
            each for each in asked if each.position is not None
        ]
        with books.redis.pipeline() as pipe:
            pipe.delete(line)
            pipe.set(line, "nonsense")
            pipe.execute()
        await eventually(lambda: one.metrics.ledger.repaired >= 2, what="mended again")
        one.undecided = [each for each in one.undecided if each in asked]
        await is_whole_again(books, one, asked)


@pytest.mark.parametrize("name", HASHES)
async def test_garbage_in_a_hash_does_no_harm(valkey: Valkey, name: str) -> None:
    books = Books(valkey)
    async with Instance(valkey, "a") as one:
        assert await one.get(ONE, TURN) == "u0"
        asked = [await one.queue(ONE, TURN) for _ in range(3)]
        key = key_of(books, name)
        for value in GARBAGE:
            fields: dict[str, Any] = dict.fromkeys(books.redis.hkeys(key), value)
            strange = {"unknown": value, "a-1/999": value, "a-1 /p": value, "/": value, " ": value}
            books.redis.hset(key, mapping={**fields, **strange})
            seq = books.redis.hget(books.key["held:"] + "a-1", "seq")
            one.lane.send_all()
            await eventually(lambda seq=seq: books.redis.hget(books.key["held:"] + "a-1", "seq") != seq)  # type: ignore[misc]
        await eventually(
            lambda: not set(books.redis.hkeys(key)) & {"unknown", "/"} or name == "classes", what="swept"
        )
        await is_whole_again(books, one, asked)


@pytest.mark.parametrize("score", [-3, 1e300, math.inf, -math.inf, 0.5, 2**60])
async def test_a_score_that_cannot_be_is_made_the_sum_of_what_is_held(valkey: Valkey, score: float) -> None:
    books = Books(valkey)
    async with Instance(valkey, "a") as one:
        assert await one.get(ONE) == "u0"
        books.redis.zadd(books.key["inflight"], {"u0": score, "": score, "not a member \x00": score})
        assert await one.get(ONE) in {"u0", "refused: pool_saturated"}
        for member in list(one.lane.held.elements())[1:]:
            one.lane.release(member)
        await books.score({"u0": 1})
        await eventually(lambda: one.metrics.ledger.drift + one.metrics.ledger.repaired >= 1, what="counted")
        assert one.undecided == []


async def test_an_unknown_holder_goes_with_all_it_seems_to_hold(valkey: Valkey) -> None:
    books = Books(valkey)
    async with Instance(valkey, "a") as one:
        assert await one.get(ONE) == "u0"
        for name in ("", "/", "a b", "x-1", "\x00"):
            books.redis.zadd(books.key["holders"], {name: "inf"})
            books.redis.hset(books.key["held:"] + name, mapping={"u0": 4, "u9": "nan"})
        await eventually(lambda: books.holders() == ["a-1"], what="all reaped")
        await books.score({"u0": 1})
        await eventually(lambda: one.metrics.ledger.repaired >= 5, what="counted")


@pytest.mark.parametrize("number", ["nonsense", "-5", "1e3", "0x10", str(2**63 - 1), "9" * 400, "1"])
async def test_a_damaged_number_of_the_queue_is_put_right(valkey: Valkey, number: str) -> None:
    books = Books(valkey)
    async with Instance(valkey, "a") as one:
        assert await one.get(ONE, TURN) == "u0"
        asked = [await one.queue(ONE, TURN) for _ in range(3)]
        books.redis.set(books.key["number"], number)
        await eventually(lambda: one.metrics.ledger.repaired >= 1, what="counted")
        await is_whole_again(books, one, asked)


@pytest.mark.parametrize("name", ["tickets", "classes", "views", "class:normal", "holders", "held:a-1", "inflight"])
async def test_a_key_that_is_gone_is_made_again(valkey: Valkey, name: str) -> None:
    books = Books(valkey)
    async with Instance(valkey, "a") as one:
        assert await one.get(ONE, TURN) == "u0"
        asked = [await one.queue(ONE, TURN) for _ in range(3)]
        books.redis.delete(key_of(books, name))
        runs = len(one.connection.sent)
        await eventually(lambda: len(one.connection.sent) > runs + 10, what="some beats")
        await is_whole_again(books, one, asked)


@pytest.mark.parametrize("names", [("class:normal", "holders", "classes"), ("lines:a-1", "holders")])
async def test_a_damaged_key_is_mended_where_the_lists_that_name_it_are_gone(
    valkey: Valkey, names: tuple[str, ...]
) -> None:
    books = Books(valkey)
    async with Instance(valkey, "a") as one, Instance(valkey, "b"):
        assert await one.get(ONE, TURN) == "u0"
        asked = [await one.queue(ONE, TURN) for _ in range(2)]
        with books.redis.pipeline(transaction=True) as pipe:
            pipe.delete(*(key_of(books, name) for name in names))
            pipe.set(key_of(books, names[0]), "nonsense")
            pipe.execute()
        one.lane.leave(asked.pop())
        await is_whole_again(books, one, asked)


async def test_requests_are_answered_or_handed_back_while_everything_is_damaged_again_and_again(
    valkey: Valkey,
) -> None:
    books, rng = Books(valkey), Random(5)
    async with Instance(valkey, "a") as one, Instance(valkey, "b") as other:
        asked: list[Request] = []
        for _ in range(60):
            name = rng.choice([*HASHES, "class:normal", "inflight", "holders", "number"])
            with books.redis.pipeline(transaction=True) as pipe:
                pipe.delete(key_of(books, name))
                commands = ("set", "{}"), ("sadd", "x"), ("zadd", {"a-1/3": rng.random()}), ("hset", "a-1/3", "{}")
                command, *arguments = rng.choice(commands)
                getattr(pipe, command)(key_of(books, name), *arguments)
                pipe.execute()
            ready = [each for each in (one, other) if each.lane.state.ready]
            asked.extend(each.ask(upstreams(2, 3), rng.choice([None, TURN])) for each in ready)
            await asyncio.sleep(0.01)
        await eventually(
            lambda: all(
                each.answer.done() or each.position is not None or each in one.undecided + other.undecided
                for each in asked
            ),
            what="all holders seen",
        )
        for each in (one, other):
            for member in list(each.lane.held.elements()):
                each.lane.release(member)
        await eventually(lambda: one.lane.state.ready and other.lane.state.ready, what="both are back")

        def is_counted() -> bool:
            """What was damaged last may not be mended yet, and cannot be read then."""
            with suppress(ResponseError, ValueError):
                return books.summed() == dict(one.lane.held + other.lane.held)
            return False

        await eventually(is_counted, what=f"{one.lane.held + other.lane.held}")
        assert one.metrics.ledger.repaired + other.metrics.ledger.repaired >= 1


STRANGE = (b"\xff\xfe", b"seq", b"silent", b"a b", b"")
"""Names of no upstream."""


async def test_names_that_slb_cannot_have_written_go_and_do_no_harm(valkey: Valkey) -> None:
    books = Books(valkey)
    raw: Any = Redis(unix_socket_path=str(valkey.process.socket))
    async with Instance(valkey, "a") as one, Instance(valkey, "b") as other:
        assert await one.get(ONE, TURN) == "u0"
        asked = [await one.queue(ONE, TURN) for _ in range(2)]
        packed = raw.hgetall(books.key["tickets"])[b"a-1/2"]
        now, live = int(raw.time()[0]) * 1000, books.redis.zrange(books.key["live"], 0, 0)[0]
        grants: list[tuple[bytes, bytes]] = []
        for name in STRANGE:
            raw.zadd(books.key["inflight"], {name: 3})
            raw.hset(books.key["view:"] + live, name, "1 1 1")
            if name not in {b"seq", b"silent"}:
                raw.hset(books.key["held:"] + "b-1", name, 2)
            raw.hset(books.key["tickets"], b"a-1/" + name, packed)
            grants += [(b"b-1/" + name, b"u0"), (b"b-1/%d" % (70 + len(grants)), name)]
        for ticket, member in grants:
            record = b'[%d,"%s",%s]' % (now, member, json.dumps(packed.decode()).encode())
            raw.hset(books.key["grants"], ticket, record)
            for key in ("granted", "granted:"):
                raw.zadd(books.key[key] + ("b-1" if key == "granted:" else ""), {ticket: now})
        assert await one.get(ONE) == "refused: pool_saturated"
        other.lane.look()
        other.lane.send_all()
        await eventually(lambda: not books.redis.exists(books.key["grants"]), what="no grants are left")
        await eventually(lambda: raw.zrange(books.key["inflight"], 0, -1) == [b"u0"], what="no scores are left")
        await eventually(
            lambda: raw.hkeys(books.key["held:"] + "b-1") in ([b"seq"], [b"seq", b"pushed"]), what="held"
        )
        await eventually(lambda: len(raw.hkeys(books.key["tickets"])) == 2, what="no tickets are left")
        await is_whole_again(books, one, asked)
        assert one.lane.state.ready
        assert other.lane.state.ready
    raw.close()


async def test_a_message_that_grants_what_the_ticket_cannot_use_is_not_used(valkey: Valkey) -> None:
    books = Books(valkey)
    async with Instance(valkey, "a", replace(SHORT, patience=60.0)) as one:
        assert await one.get(ONE, TURN) == "u0"
        asked = await one.queue(ONE, TURN)
        epoch, at = books.redis.get(books.key["epoch"]), int(books.redis.time()[0]) * 1000
        for member, held in (("seq", {"u0": 1}), ("u7", {"u0": 1}), ("u0", {"u0": 2})):
            one.lane.receive(Granted(POOL, at, epoch, (("a-1/2", member),)))
            assert one.lane.held == held
        assert await asked.answer == "u0"


@pytest.mark.parametrize("name", ["inflight", "tickets", "classes", "views", "grants", "epoch"])
async def test_a_key_of_another_type_makes_no_instance_decide_alone(valkey: Valkey, name: str) -> None:
    books = Books(valkey)
    async with Instance(valkey, "a") as one:
        assert await one.get(ONE) == "u0"
        with books.redis.pipeline(transaction=True) as pipe:
            pipe.delete(key_of(books, name))
            pipe.sadd(key_of(books, name), "x")
            pipe.execute()
        waits = one.ask(ONE, TURN, patient=True)
        await waits.waits()
        one.lane.release("u0")
        assert await waits.answer == "u0"
        assert all(ready for ready, _ in one.changes)
        assert one.undecided == []
