"""What Google knows callers by: the access tokens that its API asks for, and the OIDC tokens that its pushes have.
Needs google-auth, which `slb[cloud-tasks]` installs."""

import asyncio
import base64
import math
from collections.abc import Mapping
from functools import partial
from typing import Any

import aiohttp
import google.auth
import google.auth.exceptions
import google.auth.jwt
import google.auth.transport.requests
import orjson
import structlog
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicNumbers
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from slb.errors import TASK_KEYS_UNKNOWN, UNAUTHORIZED, Refused, TasksFailed

_SCOPE = "https://www.googleapis.com/auth/cloud-platform"
_ISSUERS = ("https://accounts.google.com", "accounts.google.com")
_WITHIN = 10.0
_OLD = 3600.0
"""Seconds after which the keys are read again; Google announces a new one days before it signs with it."""
_AGAIN = 10.0
"""Seconds between two reads, for a key that is not known too: anybody can name one."""
_SKEW = 30
"""Seconds by which our clock and Google's may differ."""

_log = structlog.get_logger("slb.jobs")


class AccessTokens:
    """Those of the account that google-auth finds: `GOOGLE_APPLICATION_CREDENTIALS`, or the metadata server."""

    def __init__(self) -> None:
        self._credentials: Any = None
        self._turn = asyncio.Lock()

    async def __call__(self) -> str:
        """One that is valid. Raises TasksFailed."""
        async with self._turn:
            if self._credentials is None or not self._credentials.valid:
                try:
                    await asyncio.to_thread(self._renew)
                except google.auth.exceptions.GoogleAuthError as error:
                    raise TasksFailed(0, f"no credentials: {error}") from None
            return str(self._credentials.token)

    def _renew(self) -> None:
        if self._credentials is None:
            self._credentials, _ = google.auth.default(scopes=[_SCOPE])
        self._credentials.refresh(partial(google.auth.transport.requests.Request(), timeout=_WITHIN))


class OidcTokens:
    """Checks that a push has a token that Google has signed, for `account` and for us. `audience`: where pushes are
    sent to; `keys_url`: where Google's keys stand. An instance is a `pushes.Check`."""

    def __init__(self, audience: str, account: str, keys_url: str) -> None:
        self._audience = audience
        self._account = account
        self._keys = _Keys(keys_url)

    async def __call__(self, headers: Mapping[str, str]) -> None:
        """Raises Refused."""
        scheme, _, token = headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer":
            raise Refused(UNAUTHORIZED, "it has no OIDC token of jobs_tasks_account")
        try:
            header = google.auth.jwt.decode_header(token)
            key_id = header.get("kid")
            key = await self._keys.of(str(key_id))
            if key is None or header.get("alg") != "RS256":
                raise ValueError("its key is none of Google's")
            claims = google.auth.jwt.decode(token, {key_id: key}, True, self._audience, _SKEW)
            self._check(claims)
        except (google.auth.exceptions.GoogleAuthError, ValueError, TypeError, RecursionError) as error:
            _log.debug("job_push_refused", error=str(error))
            raise Refused(UNAUTHORIZED, "its OIDC token is not valid here") from None

    def _check(self, claims: Mapping[str, Any]) -> None:
        if claims.get("iss") not in _ISSUERS:
            raise ValueError("its issuer is not Google")
        if claims.get("email") != self._account or claims.get("email_verified") is not True:
            raise ValueError("it is not of jobs_tasks_account")


class _Keys:
    """Google's public keys, read when they are needed."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._pems: dict[str, bytes] = {}
        self._read = self._tried = -math.inf
        self._turn = asyncio.Lock()

    async def of(self, key_id: str) -> bytes | None:
        """A key in PEM form; None where Google has none of this id. Raises Refused where that is not known."""
        now = asyncio.get_running_loop().time()
        if key_id in self._pems and now - self._read < _OLD:
            return self._pems[key_id]
        async with self._turn:
            if now - self._tried > _AGAIN:
                self._tried = now
                try:
                    self._pems = await self._fetched()
                except (aiohttp.ClientError, OSError, ValueError, LookupError, TypeError) as error:
                    _log.warning("job_task_keys_not_read", error=str(error) or type(error).__name__)
                else:
                    self._read = now
        if not self._pems:
            raise Refused(TASK_KEYS_UNKNOWN, "the keys of OIDC tokens cannot be read")
        return self._pems.get(key_id)

    async def _fetched(self) -> dict[str, bytes]:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=_WITHIN)) as session,
            session.get(self._url, allow_redirects=False) as reply,
        ):
            reply.raise_for_status()
            keys = orjson.loads(await reply.read())["keys"]
        return {key["kid"]: _pem(key) for key in keys if key["kty"] == "RSA"}


def _pem(key: Mapping[str, str]) -> bytes:
    numbers = RSAPublicNumbers(_number(key["e"]), _number(key["n"]))
    return numbers.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def _number(text: str) -> int:
    return int.from_bytes(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
