"""A length is passed on as the number it was read as: 010 is ten here, and eight to a reader of octal numbers."""

import pytest

from slb.errors import Refused
from slb.proxy.headers import RequestHeads
from slb.proxy.varying import VaryingHeads
from slb.upstreams.replies import parse_reply

WRITTEN = [("0", 0), ("00", 0), ("10", 10), ("010", 10), ("08", 8), ("0" * 17 + "5", 5), ("9" * 18, 10**18 - 1)]


@pytest.mark.parametrize(("written", "number"), WRITTEN)
@pytest.mark.parametrize("more", [b"", b"Connection: close\r\n", b"A: b\r\n"])
def test_of_a_request_the_number_is_passed_on(written: str, number: int, more: bytes) -> None:
    heads = RequestHeads(b"own", 100, trusted=False)
    for parse in (heads.parse, VaryingHeads(heads.parse, 100).parse):
        for name in ("Content-Length", "content-LENGTH"):  # which is not cut out
            head = parse(b"%b%b:%b \r\n\r\n" % (more, name.encode(), written.encode()))
            assert (head.length, head.framed) == (number, True)
            lines = [line.partition(b":") for line in head.fields.split(b"\r\n")]
            values = [value.strip() for key, _, value in lines if key.lower() == b"content-length"]
            assert values == [b"%d" % number]


@pytest.mark.parametrize(("written", "number"), WRITTEN)
@pytest.mark.parametrize("start", ["HTTP/1.1 200 OK", "HTTP/1.1 304 Not Modified", "HTTP/1.0 404 Not Found"])
def test_of_a_reply_the_number_is_passed_on(start: str, written: str, number: int) -> None:
    reply = parse_reply(f"{start}\r\nA: b\r\nContent-Length: {written}\r\nC: d\r\n\r\n".encode())
    assert reply.length == (0 if reply.bodiless else number)
    assert reply.start.split(b"\r\n")[1:4] == [b"A: b", b"Content-Length: %d" % number, b"C: d"]


def test_a_length_that_needs_no_change_stays_where_and_how_it_is() -> None:
    head = RequestHeads(b"own", 100, trusted=False).parse(b"A: b\r\ncontent-length:  10\r\nC: d\r\n\r\n")
    assert head.fields == b"A: b\r\ncontent-length:  10\r\nC: d\r\n"


@pytest.mark.parametrize("written", ["0x10", "1e1", "+10", "-0", "1_0", "0" * 19, "\u0660"])
def test_what_is_no_number_of_a_length_is_refused(written: str) -> None:
    heads = RequestHeads(b"own", 100, trusted=False)
    with pytest.raises(Refused):
        heads.parse(f"Content-Length: {written}\r\n\r\n".encode())
