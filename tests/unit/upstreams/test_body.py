"""Where a body ends: the same place however its bytes arrive, and never further than by llhttp."""

import itertools

import httptools
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slb.upstreams.body import (
    CHUNKED,
    LAST_CHUNK,
    UNTIL_CLOSE,
    BodyTooLong,
    ChunkedBody,
    CountedBody,
    MalformedBody,
    UntilCloseBody,
    body_of,
    chunk,
    last_chunk,
)
from tests.support.fuzzing import examples

REST = b"GET /next HTTP/1.1\r\n"
_extension = st.sampled_from([b"", b";a", b";a=b", b';a="b;c\\"d"', b";a;b=c"])
_trailers = st.lists(st.sampled_from([b"X-Sum: 1", b"X-Empty:", b"Expires:  later "]), max_size=3)
_payloads = st.lists(st.binary(min_size=1, max_size=40), max_size=5)


@st.composite
def encoded(draw: st.DrawFn) -> tuple[bytes, bytes, list[bytes]]:
    """A chunked body as some sender may write it, its payload, its trailers."""
    payloads, trailers = draw(_payloads), draw(_trailers)
    wire = b""
    for payload in payloads:
        size = draw(st.sampled_from([b"%x", b"%X", b"000%x"])) % len(payload)
        wire += size + draw(_extension) + b"\r\n" + payload + b"\r\n"
    wire += draw(st.sampled_from([b"0", b"000"])) + draw(_extension) + b"\r\n"
    wire += b"".join(trailer + b"\r\n" for trailer in trailers) + b"\r\n"
    return wire, b"".join(payloads), trailers


def split(data: bytes, cuts: list[int]) -> list[bytes]:
    at = sorted({cut % (len(data) + 1) for cut in cuts} | {0, len(data)})
    return [data[start:end] for start, end in itertools.pairwise(at)]


def outcome(pieces: list[bytes]) -> tuple[bool, bytes, bytes, list[bytes]] | None:
    """(done, payload, bytes behind it, trailers) after `pieces`; None where they are malformed."""
    body, payload, behind = ChunkedBody(), b"", b""
    try:
        for piece in pieces:
            if body.done:
                behind += piece
            else:
                payload += body.feed(piece)
    except MalformedBody:
        return None
    return body.done, payload, body.rest + behind, body.trailers


def by_llhttp(data: bytes) -> tuple[bool, bytes]:
    """Whether llhttp takes `data` for one whole chunked body, and the payload."""
    seen: list[bytes] = []
    ended: list[bool] = []

    class Collector:
        def on_body(self, piece: bytes) -> None:
            seen.append(piece)

        def on_message_complete(self) -> None:
            ended.append(True)

    parser = httptools.HttpRequestParser(Collector())
    parser.feed_data(b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n" + data)
    return bool(ended), b"".join(seen)


@given(encoded(), st.lists(st.integers(0, 1000), max_size=8))
def test_a_chunked_body_decodes_to_what_was_encoded_however_it_is_split(
    body: tuple[bytes, bytes, list[bytes]], cuts: list[int]
) -> None:
    wire, payload, trailers = body
    assert outcome(split(wire + REST, cuts)) == (True, payload, REST, trailers)


@given(encoded())
def test_a_chunked_body_that_comes_byte_by_byte_is_the_same_body(body: tuple[bytes, bytes, list[bytes]]) -> None:
    wire, payload, trailers = body
    assert outcome([bytes([byte]) for byte in wire]) == (True, payload, b"", trailers)


@given(encoded(), st.data())
def test_a_chunked_body_is_not_done_before_its_last_byte(
    body: tuple[bytes, bytes, list[bytes]], data: st.DataObject
) -> None:
    wire = body[0]
    cut = data.draw(st.integers(0, len(wire) - 1))
    partly = outcome([wire[:cut]])
    assert partly is not None
    assert not partly[0]


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """A chunked body with some bytes put in, taken out or changed."""
    wire = bytearray(draw(encoded())[0])
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(wire)))
        taken = draw(st.integers(0, 2))
        wire[at : at + taken] = draw(st.lists(st.sampled_from(b'\r\n0159aAfFgx;="-+:\x00\x7f\x80'), max_size=2))
    return bytes(wire)


@given(mutated(), st.lists(st.integers(0, 1000), max_size=8))
def test_a_broken_chunked_body_is_broken_however_it_is_split(wire: bytes, cuts: list[int]) -> None:
    whole, in_pieces = outcome([wire]), outcome(split(wire, cuts))
    assert whole == in_pieces


@settings(max_examples=examples(200))
@given(mutated())
def test_whatever_chunked_body_is_accepted_llhttp_reads_as_the_same(wire: bytes) -> None:
    found = outcome([wire])
    if found is not None and found[0]:
        _, payload, rest, _ = found
        assert by_llhttp(wire[: len(wire) - len(rest)]) == (True, payload)


@pytest.mark.parametrize(
    "wire",
    [
        b"\r\n",
        b"g\r\n",
        b"-1\r\n",
        b"+1\r\n",
        b"0x1\r\n",
        b" 1\r\nx\r\n",
        b"1 \r\nx\r\n",
        b"1\nx\r\n",
        b"1\r\nxy\r\n",
        b"1\r\nx\n",
        b"1\r\nx\r\r",
        b"1;\r\n",
        b"1;a=\r\n",
        b'1;a="b\r\n',
        b"1;a\x00\r\n",
        b"1;a\rb\r\n",
        b"1" * 16 + b"\r\n",
        b"0\r\nbroken\r\n",
        b"0\r\n a: b\r\n",
        b"0\r\na : b\r\n",
        b"0\r\na: \x00\r\n",
        b"0\r\n\n",
        b"0\n\n",
    ],
)
def test_a_chunk_that_is_not_written_by_the_grammar_is_malformed(wire: bytes) -> None:
    assert outcome([wire]) is None


@pytest.mark.parametrize("size_line", [b"1 ; a", b"1;a = b", b"1\t;\ta=b", b'1;a = "b c"'])
def test_spaces_around_an_extension_are_bad_but_allowed(size_line: bytes) -> None:
    assert outcome([size_line + b"\r\nx\r\n" + LAST_CHUNK]) == (True, b"x", b"", [])


@pytest.mark.parametrize("wire", [b"1;" + b"a" * 5000, b"0\r\n" + b"a: b\r\n" * 5000, b"0\r\na:" + b"b" * 20000])
def test_framing_without_end_is_malformed_and_not_kept(wire: bytes) -> None:
    assert outcome([wire]) is None
    assert outcome(split(wire, list(range(0, len(wire), 7)))) is None


def test_a_counted_body_ends_after_its_bytes() -> None:
    body = CountedBody(5)
    assert (body.feed(b"abc"), body.done, body.rest) == (b"abc", False, b"")
    assert (body.feed(b"defg"), body.done, body.rest) == (b"de", True, b"fg")


def test_a_counted_body_of_nothing_is_done_before_anything_comes() -> None:
    assert CountedBody(0).done


def test_a_counted_body_that_comes_exactly_leaves_nothing_behind() -> None:
    body = CountedBody(3)
    assert (body.feed(b"abc"), body.done, body.rest) == (b"abc", True, b"")


def test_a_body_until_close_never_ends_by_itself() -> None:
    body = UntilCloseBody()
    assert (body.feed(b"abc"), body.feed(LAST_CHUNK), body.done) == (b"abc", LAST_CHUNK, False)


@pytest.mark.parametrize(
    ("length", "kind"), [(0, CountedBody), (7, CountedBody), (CHUNKED, ChunkedBody), (UNTIL_CLOSE, UntilCloseBody)]
)
def test_the_decoder_follows_from_the_length(length: int, kind: type) -> None:
    assert type(body_of(length)) is kind


@given(st.lists(st.binary(min_size=1, max_size=300), max_size=5))
def test_what_is_sent_as_chunks_llhttp_reads_back(payloads: list[bytes]) -> None:
    wire = b"".join(map(chunk, payloads)) + LAST_CHUNK
    assert by_llhttp(wire) == (True, b"".join(payloads))


def test_a_length_over_the_limit_is_refused_before_a_byte_of_it_comes() -> None:
    assert type(body_of(10, limit=10)) is CountedBody
    with pytest.raises(BodyTooLong):
        body_of(11, limit=10)


@given(_payloads, st.integers(1, 100))
def test_a_chunked_body_is_cut_off_where_it_grows_over_the_limit(payloads: list[bytes], limit: int) -> None:
    body, wire = body_of(CHUNKED, limit), b"".join(map(chunk, payloads)) + LAST_CHUNK
    if sum(map(len, payloads)) <= limit:
        assert body.feed(wire) == b"".join(payloads)
    else:
        with pytest.raises(BodyTooLong):
            body.feed(wire)


@pytest.mark.parametrize(
    "forbidden",
    [
        b"Content-Length: 5",
        b"transfer-encoding: chunked",
        b"HOST: h",
        b"Authorization: x",
        b"X-Forwarded-For: 10.1.1.1",
        b"X_Forwarded_For: 10.1.1.1",
        b"Via: 1.1 x",
        b"Set-Cookie: a",
    ],
)
def test_what_routes_frames_or_authenticates_is_no_trailer(forbidden: bytes) -> None:
    assert last_chunk([b"X-Sum: 1", forbidden, b"X-Empty:"]) == b"0\r\nX-Sum: 1\r\nX-Empty:\r\n\r\n"


@given(_payloads, _trailers)
def test_a_body_passed_on_with_its_trailers_ends_where_it_did(payloads: list[bytes], trailers: list[bytes]) -> None:
    kept = [trailer for trailer in trailers if not trailer.startswith(b"Expires")]
    wire = b"".join(map(chunk, payloads)) + last_chunk(trailers)
    assert outcome([wire + REST]) == (True, b"".join(payloads), REST, kept)


def test_a_chunked_body_has_more_only_where_its_turn_was_over_before_its_bytes() -> None:
    body = ChunkedBody()
    more = [body.has_more]
    for data in (b"1\r\na\r\n" * 101, b"", b"5\r\nhal"):
        body.feed(data)
        more.append(body.has_more)
    assert more == [False, True, False, False]
