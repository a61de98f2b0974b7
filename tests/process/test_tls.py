"""A TLS listener in a real process: what ends the start, and what does not end what runs."""

import os
import signal
import socket
import ssl
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.process.commands import Commands, Serving
from tests.support.certificates import Authority
from tests.support.valkey import Valkey
from tests.support.waiting import eventually

START = ("serve", "--listen", "127.0.0.1:0", "--api", "127.0.0.1:0")


def broken_certificates(authority: Authority, directory: Path) -> dict[str, tuple[str, str]]:
    """What is wrong -> the setting, and the sentence about it."""
    nowhere, good = directory / "nowhere.pem", authority.issue("good", "a.test")
    other = authority.issue("other", "a.test").partition(":")[2]
    junk = authority.write("junk.pem", b"no certificate")
    return {
        "missing": (f"{nowhere}:{nowhere}", f"{nowhere}: No such file or directory"),
        "junk": (f"{junk}:{junk}", f"{junk}: not a certificate and a key in PEM form"),
        "mismatch": (f"{good.partition(':')[0]}:{other}", "the key is not this certificate's"),
    }


@pytest.mark.parametrize("workers", ["1", "2"])
@pytest.mark.parametrize("what", ["missing", "junk", "mismatch"])
async def test_a_certificate_that_cannot_be_used_ends_the_start_with_one_line(
    slb: Commands, authority: Authority, what: str, workers: str
) -> None:
    pair, fault = broken_certificates(authority, slb.directory)[what]
    result = await slb.run(*START, "--workers", workers, "--tls-certificate", pair)
    assert (result.code, result.out) == (1, "")
    (line,) = result.err.splitlines()
    assert "tls_certificates: " in line
    assert fault in line


async def test_a_config_file_that_is_not_valid_ends_the_start_whatever_the_certificates(
    slb: Commands, authority: Authority
) -> None:
    config = slb.directory / "slb.toml"
    config.write_text(f'tls_certificates = ["{authority.issue("a", "a.test")}"]\nmax_headers = 0\n')
    result = await slb.run(*START, "--config", str(config))
    assert (result.code, result.out) == (1, "")
    (line,) = result.err.splitlines()
    assert "max_headers" in line


def address(serving: Serving) -> tuple[str, int]:
    where = urlsplit(serving.url)
    assert where.hostname is not None
    assert where.port is not None
    return where.hostname, where.port


def names(serving: Serving, authority: Authority) -> set[str]:
    """Of the certificate that a new connection is shown."""
    with (
        socket.create_connection(address(serving), 10) as plain,
        authority.client().wrap_socket(plain, server_hostname="a.test") as secure,
    ):
        shown: Any = secure.getpeercert()
        return {value for _, value in shown["subjectAltName"]}


@pytest.mark.parametrize("workers", ["1", "2"])
async def test_a_bad_certificate_or_a_bad_file_leaves_the_old_certificate_in_force(
    slb: Commands, valkey: Valkey, authority: Authority, workers: str
) -> None:
    config = slb.directory / "slb.toml"
    pair = f'tls_certificates = ["{authority.issue("a", "a.test")}"]\n'
    config.write_text(pair)
    serving = await slb.serve("--workers", workers, "--config", str(config), redis=valkey.url)
    assert serving.url.startswith("https://")
    await slb.until_ready(serving)
    log = serving.process.log
    assert names(serving, authority) == {"a.test"}

    authority.write("a.pem", b"half a certifi")
    await eventually(lambda: log.read_text().count("certificate_refused") == int(workers), 20)
    config.write_text(pair + "max_headers = 0\n")
    os.kill(serving.process.pid, signal.SIGHUP)
    await eventually(lambda: "settings_refused" in log.read_text(), 20)
    assert "max_headers" in log.read_text()
    assert names(serving, authority) == {"a.test"}

    authority.issue("a", "a.test", "renewed.test")
    config.write_text(pair)
    await eventually(lambda: names(serving, authority) == {"a.test", "renewed.test"}, 20)
    assert await serving.process.stop() == 0


async def test_a_plain_request_to_it_is_answered_that_it_takes_https(
    slb: Commands, valkey: Valkey, authority: Authority
) -> None:
    pair = authority.issue("a", "a.test")
    serving = await slb.until_ready(await slb.serve("--tls-certificate", pair, redis=valkey.url))
    status, body = await slb.get(serving.url.replace("https", "http"))
    assert (status, "HTTPS only" in body) == (400, True)
    with pytest.raises(ssl.SSLCertVerificationError), socket.create_connection(address(serving), 10) as plain:
        ssl.create_default_context().wrap_socket(plain, server_hostname="a.test")
    assert await serving.process.stop() == 0
