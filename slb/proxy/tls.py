"""TLS of the listeners: certificates chosen by name, reloaded when their files change. New files are used for new
connections once they are whole; files that cannot be used are logged, and the old certificate stays."""

import asyncio
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import structlog

from slb.config import Settings
from slb.errors import ConfigError
from slb.observe.metrics import Metrics
from slb.regular_files import read_file
from slb.setting_values import certificate_files
from slb.upstreams.tls import ALPN, UpstreamTls
from slb.upstreams.tls_files import Pair, log_refused, seen_files

_CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"
"""Of TLS 1.2: forward secrecy and authenticated encryption. Those of 1.3 are all sound."""
LOOK_AGAIN = 5.0
"""Seconds between two looks at the files."""

_log = structlog.get_logger("slb.tls")

# -- a listener's


class Certificate:
    """One pair. `names`: DNS names of its SANs, lower case. `not_after`: seconds since 1970. Raises ConfigError."""

    def __init__(self, pair: Pair) -> None:
        self.pair = pair
        self.context = _server_context()
        pair.load_into(self.context)
        self.names, self.not_after = _read(pair.certificate)


def _server_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(_CIPHERS)
    context.set_alpn_protocols(ALPN)
    # Renegotiation lets a client make a server work for nothing.
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    return context


def _read(file: Path) -> tuple[Sequence[str], float]:
    """Names and end of the first certificate in `file`."""
    from cryptography import x509  # costs memory and time that only those who serve TLS are to pay

    try:
        leaf = x509.load_pem_x509_certificates(read_file(file))[0]
        names: list[str] = []
        for extension in leaf.extensions:
            if isinstance(extension.value, x509.SubjectAlternativeName):
                names = [name.lower() for name in extension.value.get_values_for_type(x509.DNSName)]
        return names, leaf.not_valid_after_utc.timestamp()
    except (OSError, ValueError, x509.UnsupportedGeneralNameType, x509.DuplicateExtension) as error:
        raise ConfigError(f"{file}: {error}") from None


def by_name(certificates: Sequence[Certificate]) -> Mapping[str, Certificate]:
    """Name -> the first certificate that has it."""
    found: dict[str, Certificate] = {}
    for certificate in certificates:
        for name in certificate.names:
            found.setdefault(name, certificate)
    return found


def chosen(names: Mapping[str, Certificate], asked: str | None) -> Certificate | None:
    """The certificate for the name a client asks for: that name, else the wildcard one label up (RFC 6125, 6.4.3);
    None where there is none."""
    name = (asked or "").lower().removesuffix(".")
    _, dot, parent = name.partition(".")
    return names.get(name) or (names.get(f"*.{parent}") if dot else None)


class Certificates:
    """All pairs of a listener. The first is used where the client names no host, or an unknown one. Raises
    ConfigError."""

    def __init__(self, pairs: Sequence[Pair], metrics: Metrics, clock: Callable[[], float] = time.time) -> None:
        self._metrics = metrics
        self._clock = clock
        self._names: Mapping[str, Certificate] = {}
        self._seen = [seen_files((pair.certificate, pair.key)) for pair in pairs]
        self._loaded = [self._load(pair) for pair in pairs]
        self._names = by_name(self._loaded)

    @property
    def context(self) -> ssl.SSLContext:
        """For the next connection."""
        return self._loaded[0].context

    def reload(self) -> None:
        """Load what has changed since the last call. Reads files: not for the event loop."""
        for number, old in enumerate(self._loaded):
            seen = seen_files((old.pair.certificate, old.pair.key))
            if seen != self._seen[number]:
                self._seen[number] = seen
                self._replace(number, old)

    def _replace(self, number: int, old: Certificate) -> None:
        try:
            self._loaded[number] = self._load(old.pair)
        except Exception as error:  # noqa: BLE001 -- whatever a file does to its reader, what was read before serves
            log_refused(self._metrics, "certificate_refused", error, file=str(old.pair.certificate))
        else:
            self._names = by_name(self._loaded)
            _log.info("certificate_replaced", file=str(old.pair.certificate))

    def _load(self, pair: Pair) -> Certificate:
        loaded = Certificate(pair)
        loaded.context.sni_callback = self._choose
        self._metrics.tls.not_after[str(pair.certificate)] = loaded.not_after
        if loaded.not_after < self._clock():
            ended = datetime.fromtimestamp(loaded.not_after, UTC).isoformat()
            _log.warning("certificate_expired", file=str(pair.certificate), not_after=ended)
        return loaded

    def _choose(self, handshake: ssl.SSLObject, asked: str | None, _: ssl.SSLContext) -> None:
        found = chosen(self._names, asked)
        if found is not None:
            handshake.context = found.context


def certificates(settings: Settings, metrics: Metrics) -> Certificates | None:
    """Those of `tls_certificates`; None where the data listener speaks no TLS. Raises ConfigError."""
    return _named(settings.tls_certificates, "tls_certificates", metrics)


def api_certificates(settings: Settings, metrics: Metrics) -> Certificates | None:
    """Those of `api_tls_certificates`; None where the API listener speaks no TLS. Raises ConfigError."""
    return _named(settings.api_tls_certificates, "api_tls_certificates", metrics)


def _named(texts: Sequence[str], setting: str, metrics: Metrics) -> Certificates | None:
    pairs = [Pair(*certificate_files(text)) for text in texts]
    try:
        return Certificates(pairs, metrics) if pairs else None
    except ConfigError as error:
        raise ConfigError(f"{setting}: {error}") from None


# -- and what upstreams are met with


async def follow(parts: Sequence[Certificates | UpstreamTls], period: float) -> None:
    """Reload every `period` seconds, until cancelled."""
    while True:
        await asyncio.sleep(period)
        for part in parts:
            await asyncio.to_thread(part.reload)


def check_files(settings: Settings) -> None:
    """Load all files that the settings name and keep nothing. Raises ConfigError."""
    certificates(settings, Metrics())
    api_certificates(settings, Metrics())
    UpstreamTls(settings, Metrics())
