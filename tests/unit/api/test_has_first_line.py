"""A first line is judged once it is whole, and refused as soon as it cannot be one."""

import pytest

from slb.api.connection import has_first_line
from slb.errors import BAD_REQUEST, URI_TOO_LONG, Reason, Refused


@pytest.mark.parametrize(
    ("data", "judged"),
    [
        (b"", []),
        (b"GET / HT", []),
        (b"GET / HTTP/1.1\r\n", [b"GET / HTTP/1.1\r\n"]),
        (b"GET / HTTP/1.1\nHost: a\r\n", [b"GET / HTTP/1.1\n"]),
    ],
)
def test_a_line_is_judged_with_its_end_once_that_is_there(data: bytes, judged: list[bytes]) -> None:
    lines: list[bytes] = []
    assert has_first_line(data, 100, lines.append) is bool(judged)
    assert lines == judged


@pytest.mark.parametrize(
    ("data", "reason"),
    [(b"\x16\x03\x01", BAD_REQUEST), (b"G" * 11, URI_TOO_LONG), (b"G" * 11 + b"\n", URI_TOO_LONG)],
)
def test_what_can_be_no_line_is_refused_before_its_end(data: bytes, reason: Reason) -> None:
    lines: list[bytes] = []
    with pytest.raises(Refused) as refused:
        has_first_line(data, 10, lines.append)
    assert (refused.value.reason, lines) == (reason, [])
    assert not has_first_line(b"G" * 10, 10, lines.append)
