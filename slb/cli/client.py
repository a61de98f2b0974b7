"""The API as the client commands call it: one call, one answer, and one line for a failure."""

import http.client
import json
import os
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import SplitResult

import orjson
import typer

from slb import names
from slb.authorities import client_context
from slb.cli.options import DEFAULT_URL, Misused
from slb.errors import NO_ROUTE, NO_ROUTE_HERE, ConfigError, InvalidName, SlbError, no_answer
from slb.loading import file_value

_TIMEOUT = 10.0
_TOKEN_HINT = " (--token, SLB_TOKEN or SLB_TOKEN_FILE)"
_EVENT_TIMEOUT = 45.0  # of a stream of events: an slb sends something every 15 s
_ROLES = (
    (("/models", "/advice"), "quota router", "start one with slb serve --roles proxy,quota"),
    (("/queue/", "/admin/"), "job dispatcher", "start one with slb serve --roles proxy,jobs"),
)
"""Endpoints that an slb has by a role of its own, what that is, and how it is had."""
_URL_HINT = "is slb serving there? --url or SLB_URL"
_CA_HINT = "--ca or SLB_CA names the file of the authority that has signed its certificate"


class ApiError(SlbError):
    """The API could not be reached, or refused; `reason` is its name for why, empty where it gave none."""

    def __init__(self, message: str, reason: str = "") -> None:
        super().__init__(message)
        self.reason = reason


class Answer(dict[str, Any]):
    """An object of a JSON answer. A missing name raises ApiError: the answer is of another version, or not
    slb's."""

    def __init__(self, found: dict[str, Any], url: str) -> None:
        super().__init__(found)
        self._url = url

    def __missing__(self, name: str) -> NoReturn:
        raise _no_slb(self._url, f"its answer has no {name!r}")


class ApiClient:
    """Calls one slb's API. Without a `token` it shows the one of the environment. `ca`: a file of the authorities
    that it is verified by; None: the machine's. Raises ConfigError where that cannot be used."""

    def __init__(
        self, url: str, token: str | None, ca: Path | None = None, environ: Mapping[str, str] = os.environ
    ) -> None:
        self._url = url.rstrip("/")
        self._parts = url_parts(url)
        self._token = token or environment_token(environ)
        self._tls = client_context(ca) if self._parts.scheme == "https" else None

    def call(self, method: str, path: str, body: Any = None, is_submit: bool = False, dry_run: bool = False) -> Any:
        """The JSON answered to `method path`: an Answer, or a list of them to a list. Raises ApiError. `is_submit`:
        202 says that it is taken, and not that it is written but does not hold yet. `dry_run`: nothing is written,
        and what would be refused is."""
        with self._reply(method, f"{path}?dry_run=true" if dry_run else path, body, _TIMEOUT) as reply:
            content = reply.read()
        answer = self._json(content)
        self._refuse(method, path, reply.status, content)
        if not _is_answer(answer, body):
            raise _no_slb(self._url, f"{method} {path} has no such answer")
        if reply.status == http.HTTPStatus.ACCEPTED and not is_submit:
            typer.echo(f"slb: this is written, and {self._url} does not serve by it yet", err=True)
        return answer

    def events(self, path: str) -> Iterator[tuple[str, Any]]:
        """Name and JSON of each event that GET `path` streams, until the server ends it. Raises ApiError."""
        with self._reply("GET", path, None, _EVENT_TIMEOUT) as reply:
            if reply.status >= 400:
                self._refuse("GET", path, reply.status, reply.read())
            if reply.headers.get_content_type() != "text/event-stream":
                raise _no_slb(self._url, f"GET {path} streams no events")
            name, data = "", ""
            for line in reply:
                field, _, value = line.decode(errors="replace").rstrip("\r\n").partition(": ")
                if field == "event":
                    name = value
                elif field == "data":
                    data += value
                elif not field and data:
                    if (found := self._json(data.encode())) is None:
                        raise ApiError(f"GET {path}: an event is no JSON")
                    yield name, found
                    name, data = "", ""

    def _refuse(self, method: str, path: str, status: int, content: bytes) -> None:
        """Raises ApiError where that is the answer."""
        if status < 400:
            return
        answer = self._json(content)
        _refuse_other_listeners(self._url, path, answer)
        hint = _TOKEN_HINT if status == http.HTTPStatus.UNAUTHORIZED else ""
        reason = str(answer.get("error", "")) if isinstance(answer, dict) else ""
        raise ApiError(f"{method} {path}: {status} {_reason(answer, content)}{hint}", reason)

    def _json(self, content: bytes) -> Any:
        try:
            return json.loads(content, object_hook=lambda found: Answer(found, self._url))
        except ValueError:
            return None

    @contextmanager
    def _reply(self, method: str, path: str, body: Any, timeout: float) -> Iterator[http.client.HTTPResponse]:
        parts = self._parts
        assert parts.hostname is not None
        connection = self._connection(parts.hostname, parts.port, timeout)
        headers = {"Content-Type": "application/json"}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        payload = _payload(body)
        try:
            connection.request(method, parts.path.rstrip("/") + path, payload, headers)
            with connection.getresponse() as reply:  # one that ends with its connection has taken that over
                yield reply
        except (OSError, http.client.HTTPException, ValueError) as error:
            what = no_answer(error)
            hint = _CA_HINT if isinstance(error, ssl.SSLCertVerificationError) else _URL_HINT
            raise ApiError(f"no answer from {self._url}: {what} ({hint})") from None
        finally:
            connection.close()

    def _connection(self, host: str, port: int | None, timeout: float) -> http.client.HTTPConnection:
        if self._tls is None:
            return http.client.HTTPConnection(host, port, timeout=timeout)
        return http.client.HTTPSConnection(host, port, timeout=timeout, context=self._tls)


def _is_answer(answer: Any, body: Any) -> bool:
    if isinstance(body, list):
        return isinstance(answer, list) and all(isinstance(each, Answer) for each in answer)
    return isinstance(answer, Answer)


def _refuse_other_listeners(url: str, path: str, answer: Any) -> None:
    if not isinstance(answer, dict) or answer.get("error") != NO_ROUTE.name:
        return
    if answer.get("detail") == NO_ROUTE_HERE:
        wanted = f"--url (or SLB_URL) is to name the API, such as {DEFAULT_URL}"
        raise ApiError(f"{url} is where an slb takes traffic: {wanted}")
    for paths, what, wanted in _ROLES:  # they have reasons of their own for what is not there
        if path.startswith(paths):
            raise ApiError(f"the slb at {url} has no {what}: {wanted}, and name its API (--url or SLB_URL)")


def _no_slb(url: str, why: str) -> ApiError:
    return ApiError(f"what answers at {url} is no slb, or one of another version: {why} (--url or SLB_URL)")


def url_parts(url: str, options: str = "--url or SLB_URL") -> SplitResult:
    """Of the URL of an slb. Raises Misused, which names the `options` that set it."""
    try:
        return names.url_parts(url)
    except InvalidName as error:
        raise Misused(f"{error} ({options})") from None


def _payload(body: Any) -> bytes | None:
    try:
        return None if body is None else orjson.dumps(body)
    except orjson.JSONEncodeError as error:  # bytes on the command line that are not UTF-8
        raise ApiError(f"what was typed cannot be sent: {error}") from None


def environment_token(environ: Mapping[str, str] = os.environ) -> str | None:
    """The token that commands find in the environment. Raises ApiError where a file that is named there cannot be
    read. Those of a server are read too, for one more release, and that is said on stderr: whoever exports one for
    commands gives it to a server that is started in the same shell."""
    if (token := _token_of("SLB_TOKEN", environ)) is not None:
        return token
    if (token := _token_of("SLB_API_TOKEN", environ)) is not None:
        named = "SLB_API_TOKEN" if environ.get("SLB_API_TOKEN") else "SLB_API_TOKEN_FILE"
        wanted = named.replace("_API", "")
        typer.echo(
            f"slb: {named} is for servers, and commands read it in this release only: use {wanted}", err=True
        )
    return token


def _token_of(variable: str, environ: Mapping[str, str]) -> str | None:
    """What it holds, or the file that it names with _FILE behind it. Raises ApiError."""
    path = environ.get(f"{variable}_FILE")
    if (token := environ.get(variable)) or path is None:
        return token or None
    try:
        return file_value(f"{variable}_FILE", path)
    except ConfigError as error:
        raise ApiError(str(error)) from None


def _reason(answer: Any, content: bytes) -> str:
    if isinstance(answer, dict) and "error" in answer:
        return f"{answer['error']}: {answer.get('detail', '')}"
    return content[:200].decode(errors="replace")
