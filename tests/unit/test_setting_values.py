"""Single values of settings: what they mean, and what is refused."""

import re

import pytest

from slb.setting_values import access_log_share, host_port


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("127.0.0.1:8080", ("127.0.0.1", 8080)),
        ("localhost:0", ("localhost", 0)),
        ("[::1]:65535", ("::1", 65535)),
        (":80", ("0.0.0.0", 80)),
    ],
)
def test_an_address_is_host_and_port(text: str, expected: tuple[str, int]) -> None:
    assert host_port(text) == expected


@pytest.mark.parametrize(
    ("text", "why"),
    [
        *((text, "such as 127.0.0.1:8080; :8080 is that port on all addresses") for text in ("", "80", "h")),
        *(
            (f"h:{port}", "a port is 1 to 65535, or 0 for one that is free")
            for port in ("", "x", "-1", "65536", "٨")
        ),
        *((text, r"an IPv6 address is written \[address\]:port") for text in ("::1", "[::1:80", "::1]:80")),
    ],
)
def test_what_is_no_address_is_refused(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=f"^'{re.escape(text)}'.*{why}$"):
        host_port(text)


def test_the_access_log_may_be_a_share_of_requests() -> None:
    assert [access_log_share(text) for text in ("0", "0.25", "1")] == [0.0, 0.25, 1.0]
    for text in ("", "-0.1", "1.1", "nan", "inf", "x"):
        with pytest.raises(ValueError, match="share"):
            access_log_share(text)
