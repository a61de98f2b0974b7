"""Certificates of a test's own authority, as files."""

import os
import ssl
from datetime import datetime
from pathlib import Path

import trustme


class Authority:
    """Issues certificates into `directory`; `client` and `server` are contexts of the tests' own ends."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._ca = trustme.CA()
        self.file = directory / "authority.pem"
        self._ca.cert_pem.write_to_path(self.file)

    def issue(self, stem: str, *names: str, ends: datetime | None = None) -> str:
        """Writes STEM.pem and STEM.key, each in one step; what `tls_certificates` calls them."""
        issued = self._ca.issue_cert(*names, not_after=ends)
        self.write(f"{stem}.key", issued.private_key_pem.bytes())
        chain = b"".join(each.bytes() for each in issued.cert_chain_pems)
        return f"{self.write(f'{stem}.pem', chain)}:{self._directory / stem}.key"

    def write(self, name: str, content: bytes) -> Path:
        """A file that is never seen half written."""
        file = self._directory / name
        part = file.with_suffix(".part")
        part.write_bytes(content)
        os.replace(part, file)
        return file

    def client(self) -> ssl.SSLContext:
        """Trusts this authority and no other."""
        return ssl.create_default_context(cafile=str(self.file))

    def server(self, *names: str) -> ssl.SSLContext:
        """Shows a certificate for `names`."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._ca.issue_cert(*names).configure_cert(context)
        return context

    def demanding_server(self, *names: str) -> ssl.SSLContext:
        """Accepts only clients with a certificate of this authority."""
        context = self.server(*names)
        context.verify_mode = ssl.CERT_REQUIRED
        self._ca.configure_trust(context)
        return context
