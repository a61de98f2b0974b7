"""Files of certificates and keys."""

import os
import ssl
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import structlog

from slb.errors import ConfigError, tls_fault
from slb.observe.metrics import Metrics
from slb.regular_files import read_file

_log = structlog.get_logger("slb.tls")

Seen = tuple[tuple[int, int, int], ...]
"""Of each file: time, size, inode."""


def fault(error: OSError | ssl.SSLError) -> str:
    """What failed, without the library's own coordinates."""
    return tls_fault(error) or error.strerror or str(error) or "the connection was closed"


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate (leaf first, then its chain) and its key, both PEM; they may be in one file."""

    certificate: Path
    key: Path

    def load_into(self, context: ssl.SSLContext) -> None:
        """Raises ConfigError."""
        for file in (self.certificate, self.key):
            _readable(file)
        try:
            context.load_cert_chain(self.certificate, self.key, password=_no_passphrase)
        except _Encrypted:
            raise ConfigError(f"{self.key}: the key is encrypted, which slb cannot read") from None
        except (OSError, ValueError) as error:
            raise ConfigError(f"{self._shown()}: {_load_fault(error)}") from None

    def _shown(self) -> str:
        return str(self.certificate) if self.certificate == self.key else f"{self.certificate} with {self.key}"


class _Encrypted(Exception):
    """A passphrase was asked for."""


def _no_passphrase() -> str:
    """Without this OpenSSL would ask at the terminal."""
    raise _Encrypted


def _load_fault(error: OSError | ValueError) -> str:
    if isinstance(error, ssl.SSLError):
        if error.reason == "KEY_VALUES_MISMATCH":
            return "the key is not this certificate's"
        return f"not a certificate and a key in PEM form ({fault(error)})"
    return str(error)


def _readable(file: Path) -> None:
    """Raises ConfigError where `file` cannot be read, before OpenSSL opens it by its name."""
    try:
        read_file(file)
    except OSError as error:
        raise ConfigError(f"{file}: {error.strerror}") from None


def seen_files(files: Iterable[Path]) -> Seen:
    """How they are now; zeros for one that is not there. Links are followed: mounted secrets change by one."""
    found = []
    for file in files:
        try:
            about = os.stat(file)
        except OSError:
            found.append((0, 0, 0))
        else:
            found.append((about.st_mtime_ns, about.st_size, about.st_ino))
    return tuple(found)


def log_refused(metrics: Metrics, event: str, error: Exception, **which: object) -> None:
    """Log and count files that cannot be used. An error that is not a ConfigError is logged with its traceback."""
    metrics.tls.reload_failures += 1
    traceback = None if isinstance(error, ConfigError) else error
    _log.error(event, **which, error=str(error), exc_info=traceback)
