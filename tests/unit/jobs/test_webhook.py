"""Signatures of callbacks, and when they are sent again."""

import base64
import hashlib
import hmac

import pytest

from slb.jobs.webhook import Reply, Step, headers_of, step_of
from slb.setting_values import signing_keys

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
OTHER = "whsec_" + base64.b64encode(b"o" * 64).decode()
HOUR, DAY = 3600.0, 86_400.0
NOW = 1_700_000_000.0


def again(
    status: int = 500, before: int = 0, since_end: float = 0.0, jitter: float = 0.0, retry_after: str = ""
) -> float:
    """Seconds until the next delivery; there has to be one."""
    step = step_of(Reply(status, retry_after=retry_after), before, since_end, NOW, jitter)
    assert step.outcome == "failed"
    assert step.again is not None
    return step.again


def test_a_signature_is_that_of_the_specifications_sample() -> None:
    body = b'{"test": 2432232314}'
    assert headers_of("msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, body, signing_keys(SECRET)) == {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }


def test_several_secrets_hold_at_once() -> None:
    both = headers_of("one", 5, b"{}", signing_keys(f"{SECRET}, {OTHER}"))["webhook-signature"]
    first, second = both.split(" ")
    assert first == headers_of("one", 5, b"{}", signing_keys(SECRET))["webhook-signature"]
    wanted = hmac.new(b"o" * 64, b"one.5.{}", hashlib.sha256).digest()
    assert second == "v1," + base64.b64encode(wanted).decode()


def test_without_a_secret_nothing_is_signed() -> None:
    assert headers_of("one", 5, b"{}", ()) == {"webhook-id": "one", "webhook-timestamp": "5"}


@pytest.mark.parametrize(
    "secret",
    [
        pytest.param("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", id="no prefix"),
        pytest.param("whpk_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", id="another prefix"),
        pytest.param("whsec_", id="nothing behind it"),
        pytest.param("whsec_" + base64.b64encode(b"k" * 23).decode(), id="23 bytes"),
        pytest.param("whsec_" + base64.b64encode(b"k" * 65).decode(), id="65 bytes"),
        pytest.param("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaS", id="not base64"),
        pytest.param("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLa-_", id="base64 for URLs"),
        pytest.param("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSü", id="not ASCII"),
        pytest.param(f"{SECRET},x", id="the second"),
    ],
)
def test_what_is_no_secret_is_refused_and_not_shown(secret: str) -> None:
    with pytest.raises(ValueError, match="24 to 64 bytes") as refused:
        signing_keys(secret)
    assert secret[6:20] not in str(refused.value) or len(secret) < 8


@pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
def test_what_is_answered_2xx_is_delivered(status: int) -> None:
    assert step_of(Reply(status), 3, 2 * DAY, NOW, 0.0) == Step("delivered")


@pytest.mark.parametrize("status", [199, 301, 307, 400, 404, 429, 500, 503])
def test_all_else_is_sent_again(status: int) -> None:
    assert again(status) == 5.0


def test_the_pause_doubles_from_5_seconds_to_an_hour() -> None:
    assert [again(before=before) for before in range(11)] == [5, 10, 20, 40, 80, 160, 320, 640, 1280, 2560, HOUR]
    assert again(before=100_000) == HOUR


def test_the_pause_is_a_tenth_more_or_less() -> None:
    assert again(before=1, jitter=1.0) == pytest.approx(11)
    assert again(before=1, jitter=-1.0) == pytest.approx(9)


def test_410_and_what_cannot_be_sent_are_given_up_at_once() -> None:
    assert step_of(Reply(410), 0, 0.0, NOW, 0.0) == Step("given_up", "status 410")
    assert step_of(Reply(0, "no URL", is_hopeless=True), 0, 0.0, NOW, 0.0) == Step("given_up", "no URL")


def test_a_redirect_says_that_it_is_not_followed() -> None:
    assert step_of(Reply(302), 0, 0.0, NOW, 0.0).error == "status 302, and redirects are not followed"


def test_it_is_tried_for_a_day_and_given_up_then() -> None:
    assert again(before=20, since_end=DAY - 100) == 100
    assert step_of(Reply(500), 20, DAY, NOW, 0.0) == Step("given_up", "status 500")


@pytest.mark.parametrize(
    ("said", "seconds"),
    [
        ("120", 120.0),
        ("1", 5.0),
        ("Tue, 14 Nov 2023 22:15:20 GMT", 120.0),
        ("Tue, 14 Nov 2023 22:13:00 GMT", 5.0),
        ("999999999", DAY - 60),
        ("Tue, 14 Nov 9999 22:15:20 GMT", DAY - 60),
        ("", 5.0),
        ("soon", 5.0),
        ("-5", 5.0),
        ("1e9", 5.0),
        ("²", 5.0),
        ("Tue, 99 Nov 2023 99:99:99 GMT", 5.0),
        ("Tue, 14 Nov 99999999 22:15:20 GMT", 5.0),
        (", , ,", 5.0),
        ("9" * 8000, 5.0),
    ],
)
def test_a_receiver_may_ask_for_more_time_but_not_for_less(said: str, seconds: float) -> None:
    assert again(503, since_end=60, retry_after=said) == seconds
