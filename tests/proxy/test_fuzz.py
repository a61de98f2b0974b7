"""Mutated requests and replies, and peers that leave, stall or overdo it at any moment.

SLB_FUZZ_SECONDS bounds each of the tests here; SLB_FUZZ_SEED chooses other examples than the usual ones.
"""

import asyncio
import logging
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

import pytest
from hypothesis import strategies as st
from structlog.testing import capture_logs

from tests.proxy.fuzzing import SECONDS, fuzz
from tests.proxy.mutations import REPLIES, REPLY_LINES, REQUEST_LINES, REQUESTS, Mutant, mutants
from tests.proxy.rig import Rig, final, send

pytestmark = pytest.mark.timeout(60 + 10 * SECONDS)


@pytest.fixture(autouse=True)
def nothing_is_logged(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Whatever peers send: it is counted and in the access log, and no warning to the operator."""
    with caplog.at_level(logging.WARNING), capture_logs() as events:
        yield
        assert [record.getMessage() for record in caplog.records] == []
        assert events == []


async def check_request(rig: Rig, mutant: Mutant) -> None:
    rig.route()
    rig.witness.seen.clear()
    to_head = mutant.raw.lstrip(b"\r\n").startswith(b"HEAD ")
    replies = await rig.exchange(mutant.pieces, to_head, lambda count: count >= whole(rig))
    assert [fault for message in rig.witness.seen for fault in message.faults] == []
    with_head = b"HEAD " in mutant.raw  # then one of the replies has no body, whatever its head states
    assert whole(rig) <= len(final(replies)) or with_head
    if not with_head:
        assert [fault for reply in replies for fault in reply.faults] == []
        targets = [message.first.split(b" ")[1] for message in rig.witness.seen if message.whole]
        assert [reply.body for reply in final(replies) if reply.status == 200] == targets
    await rig.at_rest()
    await rig.check_clean()


def whole(rig: Rig) -> int:
    return sum(message.whole for message in rig.witness.seen)


def test_no_mutated_request_reaches_the_upstream_malformed() -> None:
    fuzz(mutants(REQUESTS, REQUEST_LINES), check_request, [Mutant(raw, ()) for raw in REQUESTS])


ENDINGS = ("keep", "close", "reset")


async def check_reply(rig: Rig, case: tuple[Mutant, str, str]) -> None:
    mutant, method, ending = case

    async def play(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        for piece in mutant.pieces:
            send(writer, piece)
            await asyncio.sleep(0)
        if ending == "reset":
            writer.transport.abort()
        return ending == "keep"

    rig.route(first_byte_timeout="100ms", idle_timeout="100ms")
    rig.witness.play = play
    request = f"{method} /play HTTP/1.1\r\nHost: h\r\nTE: trailers\r\nConnection: close, TE\r\n\r\n".encode()
    replies = await rig.exchange([request], method == "HEAD", lambda count: count > 0)
    assert [fault for reply in replies for fault in reply.faults] == []
    assert len(final(replies)) <= 1
    assert [value for reply in replies for value in reply.all(b"x-request-id") if value == b"theirs"] == []
    await rig.at_rest()
    await rig.check_clean()


def test_no_mutated_reply_reaches_the_client_malformed() -> None:
    cases = st.tuples(
        mutants(REPLIES, REPLY_LINES), st.sampled_from(["GET", "POST", "HEAD"]), st.sampled_from(ENDINGS)
    )
    fuzz(cases, check_reply, [(Mutant(raw, ()), "GET", "close") for raw in REPLIES])


CLIENT_ENDS = ("stays", "closes", "resets", "stalls", "closes its sending side")
UPSTREAM_ENDS = ("keeps", "closes", "resets", "stalls", "sends more", "sends more later")
PATIENCE = 0.2


@dataclass(frozen=True)
class Meeting:
    """A client that sends `sent` tenths of its request and reads `read` tenths of its reply, and an upstream that
    reads `taken` tenths of the body and sends `replied` tenths of its reply, before each does what it does."""

    request: str
    reply: str
    sent: int
    read: int
    client: str
    taken: int
    replied: int
    upstream: str


BIG = bytes(300_000)
UPLOADS = {
    "nothing": b"GET /play HTTP/1.1\r\nHost: h\r\n\r\n",
    "counted": b"POST /play HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n%b" % (len(BIG), BIG),
    "chunked": b"PUT /play HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n"
    % (len(BIG), BIG),
    "upgrade": b"GET /play HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nhello",
}
DOWNLOADS = {
    "small": b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
    "counted": b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(BIG), BIG),
    "chunked": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(BIG), BIG),
    "until close": b"HTTP/1.1 200 OK\r\n\r\n" + BIG,
    "switching": b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n" + BIG,
}
tenths = st.integers(0, 10)
meetings = st.builds(
    Meeting,
    st.sampled_from(sorted(UPLOADS)),
    st.sampled_from(sorted(DOWNLOADS)),
    tenths,
    tenths,
    st.sampled_from(CLIENT_ENDS),
    tenths,
    tenths,
    st.sampled_from(UPSTREAM_ENDS),
)


async def play_upstream(meeting: Meeting, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    async with asyncio.timeout(PATIENCE):
        await reader.read(len(BIG) * meeting.taken // 10)
    reply = DOWNLOADS[meeting.reply]
    send(writer, reply[: len(reply) * meeting.replied // 10])
    await asyncio.sleep(0)
    if meeting.upstream == "resets":
        writer.transport.abort()
    elif meeting.upstream == "stalls":
        async with asyncio.timeout(PATIENCE):
            await reader.read()
    elif meeting.upstream.startswith("sends more"):
        await asyncio.sleep(0.01 if meeting.upstream.endswith("later") else 0)
        send(writer, b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nEVIL")
    return False


async def play_client(rig: Rig, meeting: Meeting) -> None:
    request, reply = UPLOADS[meeting.request], DOWNLOADS[meeting.reply]
    reader, writer = await rig.connect()
    with suppress(ConnectionError, TimeoutError, asyncio.IncompleteReadError):
        async with asyncio.timeout(PATIENCE):
            send(writer, request[: len(request) * meeting.sent // 10])
            if meeting.client == "closes its sending side":
                writer.write_eof()
            await reader.readexactly(len(reply) * meeting.read // 10)
            if meeting.client == "stays":
                await reader.read()
            elif meeting.client == "stalls":
                await asyncio.sleep(PATIENCE)
    if meeting.client == "closes":
        writer.close()
    else:
        writer.transport.abort()


async def check_meetings(rig: Rig, cases: list[Meeting]) -> None:
    left = list(cases)

    async def play(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        with suppress(TimeoutError):
            return await play_upstream(left.pop() if left else cases[0], reader, writer)
        return False

    rig.route(first_byte_timeout="100ms", idle_timeout="100ms", tunnel_timeout="100ms")
    rig.witness.play = play
    await asyncio.gather(*(play_client(rig, each) for each in cases))
    await rig.at_rest()
    await rig.check_clean()


def test_an_end_of_either_side_at_any_moment_leaves_nothing_behind() -> None:
    fuzz(st.lists(meetings, min_size=1, max_size=8), check_meetings, [], head_timeout="100ms")
