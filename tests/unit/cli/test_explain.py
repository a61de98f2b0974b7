"""`slb explain` and `slb drain` where what is typed is not there, or is another thing."""

import pytest

from tests.unit.cli.conftest import Server, Slb


@pytest.mark.parametrize(
    ("typed", "told"),
    [
        (("",), "type a request's X-Request-Id, or a path such as /p1/x"),
        (
            ("http://h:8080/p1?q",),
            "'http://h:8080/p1?q' is a URL: slb explain /p1 says where a request of its path would go",
        ),
        (("abc", "--key", "k"), "--key goes with a path"),
    ],
)
def test_what_can_be_no_request_and_no_path_is_told_in_a_line(
    slb: Slb, server: Server, typed: tuple[str, ...], told: str
) -> None:
    assert slb("explain", *typed) == (2, "", f"slb: {told}\n")
    assert server.asked == []


@pytest.mark.parametrize(
    ("command", "reason", "mend"),
    [
        (("explain", "p1/x"), "unknown_request", "a path begins with /"),
        (("explain", "/p1"), "no_route", "slb routes shows all"),
        (("drain", "10.0.0.9:80"), "no_route", "slb upstreams shows those that there are"),
        (("drain", "10.0.0.9:80", "--yes"), "no_route", "slb upstreams shows those that there are"),
        (("undrain", "10.0.0.9:80"), "no_route", "slb upstreams shows those that there are"),
    ],
)
def test_what_is_not_there_comes_with_what_to_type(
    slb: Slb, server: Server, command: tuple[str, ...], reason: str, mend: str
) -> None:
    server.status, server.answer = 404, {"error": reason, "detail": "it is not there"}
    code, out, err = slb(*command)
    assert (code, out, err.count("\n"), mend in err) == (1, "", 1, True), err
