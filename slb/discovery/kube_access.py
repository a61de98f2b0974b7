"""Where the Kubernetes API is, and how this process shows who it is: its files are read again as the kubelet
rewrites them."""

import os
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from slb.errors import ConfigError
from slb.names import join_member
from slb.regular_files import read_file

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""What every pod has."""

_TOKEN_AGE = 60.0  # seconds; the kubelet rewrites it at 80 % of its life, an hour or less


@dataclass(frozen=True, slots=True)
class Access:
    """`url`: of the API server, without a slash at its end; `token`, `authority`: files, None for none."""

    url: str
    namespace: str
    token: Path | None = None
    authority: Path | None = None


def access_of(
    url: str,
    namespace: str,
    token: Path | None,
    authority: Path | None,
    environ: Mapping[str, str] = os.environ,
    account: Path = ACCOUNT,
) -> Access:
    """What is not given is as every pod has it. Raises ConfigError, which names what is missing."""
    is_inside = not url
    if is_inside:
        host, port = environ.get("KUBERNETES_SERVICE_HOST", ""), environ.get("KUBERNETES_SERVICE_PORT", "443")
        if not host or not port.isdecimal():
            raise ConfigError(
                "discovery_kubernetes_api_server: this is no pod (KUBERNETES_SERVICE_HOST is not set): "
                "give the URL of the API server"
            )
        url = f"https://{join_member('http', host, int(port))}"
        token, authority = token or account / "token", authority or account / "ca.crt"
    if not namespace:
        file = account / "namespace"
        namespace = _text(file) if is_inside and file.exists() else "default"
    return Access(url, namespace, token, authority)


def _text(file: Path) -> str:
    try:
        return read_file(file).decode().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file}: {error}") from None


class Credentials:
    """The token and the TLS context, read again when they are old. Both raise OSError or ValueError where a file
    cannot be read: it may be just being replaced."""

    def __init__(self, access: Access, clock: Callable[[], float] = time.monotonic) -> None:
        self._access = access
        self._clock = clock
        self._token = ""
        self._read_at = -_TOKEN_AGE
        self._authority = b""
        self._context: ssl.SSLContext | None = None

    def headers(self) -> dict[str, str]:
        """With the token, where there is one."""
        if self._access.token is None:
            return {}
        if self._clock() - self._read_at >= _TOKEN_AGE:
            token = read_file(self._access.token).decode().strip()
            if not token or not token.isprintable() or not token.isascii():
                raise ValueError(f"{self._access.token} holds no token")
            self._token, self._read_at = token, self._clock()
        return {"Authorization": f"Bearer {self._token}"}

    def refused(self) -> None:
        """The token was not taken: read it before the next call."""
        self._read_at = -_TOKEN_AGE

    def context(self) -> ssl.SSLContext:
        """It verifies the API server. The same one until the authority's file changes."""
        content = read_file(self._access.authority) if self._access.authority is not None else b""
        if self._context is None or content != self._authority:
            text = content.decode() if content else None
            self._context, self._authority = ssl.create_default_context(cadata=text), content
        return self._context
