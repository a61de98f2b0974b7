"""The OIDC tokens of pushes, signed by a key of the tests' own, whose public half the stand-in serves."""

import base64
import time
from collections.abc import AsyncIterator
from typing import Any

import google.auth
import google.auth.jwt
import orjson
import pytest

from slb.errors import Refused, TasksFailed
from slb.jobs.google_auth import AccessTokens, OidcTokens
from tests.support.cloud_tasks import CloudTasksStub, SigningKey

AUDIENCE = "https://slb.example/tasks/handle"
ACCOUNT = "slb@acme.example"


@pytest.fixture
async def stub() -> AsyncIterator[CloudTasksStub]:
    stub = await CloudTasksStub().start()
    yield stub
    await stub.stop()


@pytest.fixture
def check(stub: CloudTasksStub) -> OidcTokens:
    return OidcTokens(AUDIENCE, ACCOUNT, f"{stub.url}/certs")


async def refused(check: OidcTokens, token: str) -> str:
    with pytest.raises(Refused) as caught:
        await check({"Authorization": f"Bearer {token}"})
    return caught.value.reason.name


async def test_a_token_of_google_for_us_is_taken_and_keys_are_read_once(
    check: OidcTokens, stub: CloudTasksStub
) -> None:
    for issuer in ("https://accounts.google.com", "accounts.google.com"):
        await check({"Authorization": f"Bearer {stub.key.token(AUDIENCE, ACCOUNT, iss=issuer)}"})
    await check({"Authorization": f"bearer {stub.key.token(AUDIENCE, ACCOUNT, iat=int(time.time()) + 5)}"})
    assert stub.keys_read == 1


@pytest.mark.parametrize(
    ("given", "claims"),
    [
        ((AUDIENCE, ACCOUNT), {"iss": "https://accounts.example"}),
        ((AUDIENCE, ACCOUNT), {"iat": 1, "exp": int(time.time()) - 600}),
        ((AUDIENCE, ACCOUNT), {"iat": int(time.time()) + 6000}),
        ((AUDIENCE, ACCOUNT), {"email_verified": False}),
        ((AUDIENCE, ACCOUNT), {"email_verified": "true"}),
        ((AUDIENCE, ACCOUNT), {"alg": "none"}),
        ((AUDIENCE, ACCOUNT), {"alg": "HS256"}),
        ((AUDIENCE, ACCOUNT), {"alg": "ES256"}),
        ((AUDIENCE, ACCOUNT), {"exp": "late"}),
        ((AUDIENCE + "/", ACCOUNT), {}),
        ((AUDIENCE, "other@acme.example"), {}),
    ],
)
async def test_a_token_that_is_not_for_us_is_refused(
    check: OidcTokens, stub: CloudTasksStub, given: tuple[str, str], claims: dict[str, Any]
) -> None:
    assert await refused(check, stub.key.token(*given, **claims)) == "unauthorized"


async def test_what_google_has_not_signed_is_refused(check: OidcTokens, stub: CloudTasksStub) -> None:
    forged = SigningKey(stub.key.id).token(AUDIENCE, ACCOUNT)
    unknown = SigningKey("key-9").token(AUDIENCE, ACCOUNT)
    head, body, signature = stub.key.token(AUDIENCE, ACCOUNT).split(".")
    other = base64.urlsafe_b64encode(orjson.dumps({"iss": "accounts.google.com"})).decode().rstrip("=")
    nested = base64.urlsafe_b64encode(b"[" * 30_000).decode()
    kid = base64.urlsafe_b64encode(b'{"alg": "RS256", "kid": [1]}').decode()
    for token in (
        *(forged, unknown, f"{head}.{other}.{signature}", f"{head}.{body}.", f"{head}.{body}", "", "..", "\udc80"),
        *(f"{nested}.{body}.{signature}", f"{kid}.{body}.{signature}", f"{head}.{nested}.{signature}"),
    ):
        assert await refused(check, token) == "unauthorized"
    with pytest.raises(Refused):
        await check({})
    assert stub.keys_read == 1  # an unknown key's name has them read again only after a while


async def test_a_key_that_is_none_of_googles_ends_the_check(
    check: OidcTokens, stub: CloudTasksStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    def decoded(*_: object) -> dict[str, object]:
        """As of a library that takes what it has no key for."""
        return {"iss": "accounts.google.com", "email": ACCOUNT, "email_verified": True}

    monkeypatch.setattr(google.auth.jwt, "decode", decoded)
    assert await refused(check, SigningKey("key-9").token(AUDIENCE, ACCOUNT)) == "unauthorized"
    await check({"Authorization": f"Bearer {stub.key.token(AUDIENCE, ACCOUNT)}"})


async def test_a_new_key_of_google_is_found(
    check: OidcTokens, stub: CloudTasksStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    await check({"Authorization": f"Bearer {stub.key.token(AUDIENCE, ACCOUNT)}"})
    monkeypatch.setattr("slb.jobs.google_auth._AGAIN", 0.0)
    new = SigningKey("key-2")
    stub.keys = [{"kty": "EC", "kid": "other"}, new.jwk]
    await check({"Authorization": f"Bearer {new.token(AUDIENCE, ACCOUNT)}"})
    assert await refused(check, stub.key.token(AUDIENCE, ACCOUNT)) == "unauthorized"


async def test_keys_that_cannot_be_read_are_no_fault_of_the_task(
    check: OidcTokens, stub: CloudTasksStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    stub.keys = ["none"]
    assert await refused(check, stub.key.token(AUDIENCE, ACCOUNT)) == "task_keys_unknown"
    monkeypatch.setattr("slb.jobs.google_auth._AGAIN", 0.0)
    stub.keys = [stub.key.jwk]
    await check({"Authorization": f"Bearer {stub.key.token(AUDIENCE, ACCOUNT)}"})
    monkeypatch.setattr("slb.jobs.google_auth._OLD", 0.0)
    stub.keys = ["none"]  # those that were known hold until there are others
    await check({"Authorization": f"Bearer {stub.key.token(AUDIENCE, ACCOUNT)}"})
    assert stub.keys_read == 3


class _Credentials:
    """What google-auth finds."""

    def __init__(self) -> None:
        self.token, self.renewed, self.valid = "", 0, False

    def refresh(self, request: Any) -> None:
        self.renewed += 1
        self.token, self.valid = f"access-{self.renewed}", True


async def test_an_access_token_is_renewed_when_it_is_not_valid_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    found = _Credentials()
    monkeypatch.setattr(google.auth, "default", lambda scopes: (found, "acme"))
    tokens = AccessTokens()
    assert [await tokens(), await tokens()] == ["access-1", "access-1"]
    found.valid = False
    assert await tokens() == "access-2"


async def test_a_machine_without_credentials_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(scopes: list[str]) -> None:
        raise google.auth.exceptions.DefaultCredentialsError("none were found")

    monkeypatch.setattr(google.auth, "default", none)
    with pytest.raises(TasksFailed, match="no credentials: none were found"):
        await AccessTokens()()
