"""What may be sent again, and with how much time."""

from typing import Any

import aiohttp
import pytest
from aiohttp import ClientTimeout

from slb.client.retry import is_failure, may_send_again, rest_of


@pytest.mark.parametrize(
    ("method", "options", "allowed"),
    [
        ("GET", {}, True),
        ("get", {}, True),
        ("PUT", {"data": b"x"}, True),
        ("PUT", {"data": "x"}, True),
        ("DELETE", {"json": {"a": 1}}, True),
        ("POST", {}, False),
        ("PATCH", {"data": b"x"}, False),
        ("PUT", {"data": iter([b"x"])}, False),
        ("PUT", {"data": {"field": "x"}}, False),
        ("PROPFIND", {}, False),
    ],
)
def test_only_idempotent_calls_whose_body_is_still_there_are_sent_again(
    method: str, options: dict[str, Any], allowed: bool
) -> None:
    assert may_send_again(method, options, None) is allowed
    assert may_send_again(method, options, aiohttp.ServerDisconnectedError()) is allowed


def test_a_call_that_never_had_a_connection_may_always_be_sent_again() -> None:
    error = aiohttp.ConnectionTimeoutError()
    assert may_send_again("POST", {"data": b"x"}, error)
    assert not may_send_again("POST", {"data": iter([b"x"])}, error)


@pytest.mark.parametrize(
    ("error", "failed"),
    [
        (aiohttp.ServerDisconnectedError(), True),
        (aiohttp.ClientOSError(104, "reset"), True),
        (aiohttp.SocketTimeoutError(), True),
        (aiohttp.ConnectionTimeoutError(), True),
        (ConnectionResetError(), True),
        (TimeoutError(), False),
        (aiohttp.InvalidURL("x"), False),
        (ValueError(), False),
    ],
)
def test_the_transport_failing_is_a_failure_and_the_callers_own_limit_is_none(
    error: BaseException, failed: bool
) -> None:
    assert is_failure(error) is failed


def test_what_is_left_of_a_time_limit_is_never_nothing_and_never_for_ever() -> None:
    whole = ClientTimeout(total=5, sock_read=2, sock_connect=1)
    assert rest_of(whole, 3) == ClientTimeout(total=2, sock_read=2, sock_connect=1)
    spent = rest_of(whole, 7)
    assert isinstance(spent, ClientTimeout)
    assert spent.total is not None
    assert 0 < spent.total < 0.01
    assert rest_of(ClientTimeout(total=None), 3) == ClientTimeout(total=None)
    assert rest_of(None, 3) is None
    assert rest_of(5, 3) == 2
