"""TLS towards upstreams: one context, reloaded when its files change. New files are used for new connections once
they are whole; files that cannot be used are logged, and the old ones stay."""

import asyncio
import ssl

import structlog

from slb.authorities import trust
from slb.config import Settings
from slb.errors import ConfigError
from slb.observe.metrics import Metrics
from slb.upstreams.tls_files import Pair, log_refused, seen_files

ALPN = ["http/1.1"]
"""On either side of slb."""
SHUTDOWN_TIMEOUT = 5.0
"""Seconds the other side has to answer close_notify: some never do, and a drain waits for them."""

_log = structlog.get_logger("slb.tls")


class UpstreamTls:
    """The context for all `https://` upstreams. `upstream_ca` replaces the system's authorities;
    `upstream_certificate` and `upstream_key` are slb's own. Raises ConfigError for files that cannot be used."""

    def __init__(self, settings: Settings, metrics: Metrics) -> None:
        self._metrics = metrics
        self._authorities = settings.upstream_ca
        own, key = settings.upstream_certificate, settings.upstream_key
        self._own = Pair(own, key or own) if own is not None else None
        pair = (self._own.certificate, self._own.key) if self._own is not None else ()
        self._files = [file for file in (self._authorities, *pair) if file is not None]
        self._seen = seen_files(self._files)
        self._context = self._load() if self._files else None

    async def context(self) -> ssl.SSLContext:
        """For the next connection. The system's authorities are read at the first call, in a thread."""
        if self._context is None:
            self._context = await asyncio.to_thread(self._load)
        return self._context

    def reload(self) -> None:
        """Load what has changed since the last call. Reads files: not for the event loop."""
        seen = seen_files(self._files)
        if seen == self._seen:
            return
        self._seen = seen
        try:
            self._context = self._load()
        except Exception as error:  # noqa: BLE001
            log_refused(self._metrics, "upstream_certificates_refused", error, files=self._named())
        else:
            _log.info("upstream_certificates_replaced", files=self._named())

    def _named(self) -> list[str]:
        """Each file once: certificate and key may be in one."""
        return list(dict.fromkeys(map(str, self._files)))

    def _load(self) -> ssl.SSLContext:
        """Raises ConfigError."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # verifies chain and name
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(ALPN)
        self._trust(context)
        if self._own is not None:
            try:
                self._own.load_into(context)
            except ConfigError as error:
                raise ConfigError(f"upstream_certificate: {error}") from None
        return context

    def _trust(self, context: ssl.SSLContext) -> None:
        try:
            trust(context, self._authorities)
        except ConfigError as error:
            raise ConfigError(f"upstream_ca: {error}") from None
