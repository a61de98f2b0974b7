"""By which authorities a server's certificate is verified."""

import ssl
from pathlib import Path

from slb.errors import ConfigError
from slb.regular_files import read_file


def trust(context: ssl.SSLContext, file: str | Path | None) -> None:
    """Let `context` verify by the authorities in a PEM file, or, without one, by the machine's. Reads files. Raises
    ConfigError, naming the file."""
    if file is None:
        context.load_default_certs()
        return
    try:
        read_file(Path(file))
        context.load_verify_locations(file)
    except OSError as error:
        why = "no certificates in PEM form" if isinstance(error, ssl.SSLError) else error.strerror
        raise ConfigError(f"{file}: {why}") from None


def client_context(ca: str | Path | None) -> ssl.SSLContext:
    """For calls of an API: `trust`, and the name is verified too."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        trust(context, ca)
    except ConfigError as error:
        raise ConfigError(f"ca: {error}") from None
    return context
