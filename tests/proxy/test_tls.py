"""TLS on the listener, on real sockets with certificates of a private authority."""

import asyncio
import contextlib
import logging
import ssl
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from slb.config import Settings
from slb.errors import ConfigError
from slb.observe.metrics import Metrics
from slb.proxy import downstream, entrance
from slb.proxy.tls import UpstreamTls, certificates, check_files
from tests.proxy.harness import MakeOrigin, MakeProxy, Origin, Proxy, Request, Wire
from tests.support.certificates import Authority
from tests.support.waiting import eventually


async def secure_proxy(proxies: MakeProxy, origin: Origin, *pairs: str, **settings: Any) -> Proxy:
    """A proxy that speaks TLS and leads to `origin`."""
    proxy = await proxies(tls_certificates=pairs, **settings)
    proxy.route("/", origin)
    return proxy


def names_shown(wire: Wire) -> set[str]:
    """The DNS names of the certificate that was shown."""
    shown = wire.writer.get_extra_info("ssl_object").getpeercert()
    return {value for kind, value in shown["subjectAltName"] if kind == "DNS"}


async def names_for(proxy: Proxy, authority: Authority, asked: str | None) -> set[str]:
    """The names of the certificate that whoever asks for `asked` is shown."""
    context = authority.client()
    context.check_hostname = False
    wire = await proxy.connect(ssl=context, server_hostname=asked or "127.0.0.1")  # no SNI for an address
    try:
        return names_shown(wire)
    finally:
        wire.close()


@contextlib.asynccontextmanager
async def following(proxy: Proxy) -> AsyncIterator[None]:
    """The proxy looks at its files all the time."""
    task = asyncio.create_task(proxy.server.follow_files(period=0.01))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


# -- the listener


async def test_requests_over_tls_are_https_to_the_upstream(
    proxies: MakeProxy, origin: Origin, authority: Authority
) -> None:
    proxy = await secure_proxy(proxies, origin, authority.issue("a", "a.test"))
    wire = await proxy.connect(ssl=authority.client(), server_hostname="a.test")
    for _ in range(3):
        assert (await wire.get()).body == b"ok"
    assert [each.one("X-Forwarded-Proto") for each in origin.requests] == ["https"] * 3
    assert origin.requests[0].one("X-Forwarded-For") == "127.0.0.1"
    assert proxy.logged()[0]["client"] == "127.0.0.1"


async def test_the_certificate_is_chosen_by_the_name_asked_for(
    proxies: MakeProxy, origin: Origin, authority: Authority
) -> None:
    pairs = [
        authority.issue("first", "first.test"),
        authority.issue("second", "second.test", "*.second.test"),
        authority.issue("third", "www.second.test"),
    ]
    proxy = await secure_proxy(proxies, origin, *pairs)
    second, third = {"second.test", "*.second.test"}, {"www.second.test"}
    assert await names_for(proxy, authority, "second.test") == second
    assert await names_for(proxy, authority, "API.Second.test") == second
    assert await names_for(proxy, authority, "www.second.test") == third
    for stranger in ("a.b.second.test", "other.test", "test", None):
        assert await names_for(proxy, authority, stranger) == {"first.test"}


async def test_old_versions_and_weak_ciphers_get_no_connection(
    proxies: MakeProxy, origin: Origin, authority: Authority
) -> None:
    proxy = await secure_proxy(proxies, origin, authority.issue("a", "a.test"))
    old = authority.client()
    with pytest.warns(DeprecationWarning, match="TLSv1_1 is deprecated"):
        old.maximum_version = ssl.TLSVersion.TLSv1_1
    old.set_ciphers("ALL:@SECLEVEL=0")
    weak = authority.client()
    weak.maximum_version = ssl.TLSVersion.TLSv1_2
    weak.set_ciphers("ECDHE-ECDSA-AES128-SHA:@SECLEVEL=0")
    for context in (old, weak):
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await proxy.connect(ssl=context, server_hostname="a.test")
    await eventually(lambda: sum(proxy.metrics.tls_handshake_failures.values()) == 2)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_only_http_1_is_agreed_on(
    proxies: MakeProxy, origin: Origin, authority: Authority, version: ssl.TLSVersion
) -> None:
    proxy = await secure_proxy(proxies, origin, authority.issue("a", "a.test"))
    context = authority.client()
    context.minimum_version = context.maximum_version = version
    context.set_alpn_protocols(["h2", "http/1.1"])
    wire = await proxy.connect(ssl=context, server_hostname="a.test")
    assert wire.writer.get_extra_info("ssl_object").selected_alpn_protocol() == "http/1.1"
    assert (await wire.get()).status == 200


async def test_bodies_stream_both_ways_over_tls(
    proxies: MakeProxy, origins: MakeOrigin, authority: Authority
) -> None:
    async def echo(request: Request) -> None:
        body = await request.body()
        await request.wire.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)

    proxy = await secure_proxy(proxies, await origins(echo), authority.issue("a", "a.test"))
    wire = await proxy.connect(ssl=authority.client(), server_hostname="a.test")
    sent = bytes(range(256)) * 8192
    head = b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n" % len(sent)
    await wire.send(head + sent[: 1 << 20])
    await wire.send(sent[1 << 20 :])
    assert (await wire.reply()).body == sent


async def test_a_slow_client_over_tls_holds_the_upstream_back(
    proxies: MakeProxy, origins: MakeOrigin, authority: Authority
) -> None:
    async def flood(request: Request) -> None:
        await request.wire.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (200 << 20))
        for _ in range(200):
            await request.wire.send(bytes(1 << 20))
            sent.append(1)

    sent: list[int] = []
    proxy = await secure_proxy(proxies, await origins(flood), authority.issue("a", "a.test"))
    wire = await proxy.connect(ssl=authority.client(), server_hostname="a.test")
    wire.writer.transport.pause_reading()  # type: ignore[attr-defined]
    await wire.send(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
    before = -1
    while before != len(sent):
        before = len(sent)
        await asyncio.sleep(0.2)
    assert before < 50, "the proxy takes in what its client does not take off it"
    wire.reset()
    await proxy.at_rest()


async def test_a_refused_upload_can_read_its_answer_and_then_sees_the_end(
    proxies: MakeProxy, origin: Origin, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(downstream, "_LINGER", 1000.0)
    proxy = await secure_proxy(proxies, origin, authority.issue("a", "a.test"), max_body=1000)
    wire = await proxy.connect(ssl=authority.client(), server_hostname="a.test")
    await wire.send(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 9000000\r\n\r\n" + bytes(100_000))
    with contextlib.suppress(ConnectionError):
        await wire.send(bytes(500_000))
    reply = await wire.reply()
    assert (reply.status, reply.reason) == (413, "body_too_large")
    assert await wire.ended()
    wire.close()
    await eventually(lambda: proxy.metrics.connections() == 0)


async def test_an_idle_connection_over_tls_ends_when_draining(
    proxies: MakeProxy, origin: Origin, authority: Authority
) -> None:
    proxy = await secure_proxy(proxies, origin, authority.issue("a", "a.test"))
    wire = await proxy.connect(ssl=authority.client(), server_hostname="a.test")
    await wire.get()
    drain = asyncio.create_task(proxy.server.drain(5))
    assert await wire.ended()
    wire.close()
    assert await drain == 0


async def test_who_was_shaking_hands_when_the_drain_began_is_still_served(
    proxies: MakeProxy, origin: Origin, authority: Authority
) -> None:
    proxy = await secure_proxy(proxies, origin, authority.issue("a", "a.test"))
    reader, writer = await asyncio.open_connection(*proxy.address)
    await eventually(lambda: proxy.server.arriving == 1)
    drain = asyncio.create_task(proxy.server.drain(5))
    await asyncio.sleep(0)
    await writer.start_tls(authority.client(), server_hostname="a.test")
    reply = await Wire(reader, writer).get()
    assert (reply.status, reply.one("Connection")) == (200, "close")
    writer.close()
    assert await drain == 0


async def test_the_applications_get_connections_over_tls_too(
    proxies: MakeProxy, origin: Origin, authority: Authority
) -> None:
    proxy = await secure_proxy(proxies, origin, authority.issue("a", "a.test"))
    wire = await proxy.connect(ssl=authority.client(), server_hostname="a.test")
    assert (await wire.get("/_slb/healthz")).body == b"mine"
    assert origin.requests == []


async def test_a_tunnel_goes_through_tls_on_both_sides_and_ends_with_either(
    proxies: MakeProxy, origins: MakeOrigin, authority: Authority
) -> None:
    async def shout(request: Request) -> None:
        await request.wire.send(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
        while data := await request.wire.reader.read(65536):
            await request.wire.send(data.upper())

    origin = await origins(shout, tls=authority.server("127.0.0.1"))
    proxy = await secure_proxy(proxies, origin, authority.issue("a", "a.test"), upstream_ca=authority.file)
    wire = await proxy.connect(ssl=authority.client(), server_hostname="a.test")
    await wire.send(b"GET / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\nearly ")
    first, _ = await wire.head()
    assert first == "HTTP/1.1 101 Switching Protocols"
    await wire.send(b"and late")
    assert await wire.reader.readexactly(14) == b"EARLY AND LATE"
    assert proxy.inflight() == 1
    wire.close()
    await proxy.at_rest()
    await eventually(lambda: origin.open == 0)
    assert proxy.counted() == {(101, ""): 1}


# -- handshakes that fail


async def test_a_failed_handshake_is_counted_and_leaves_no_traceback(
    proxies: MakeProxy, origin: Origin, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    proxy = await secure_proxy(proxies, origin, authority.issue("a", "a.test"))
    with caplog.at_level(logging.INFO):
        plain = await proxy.connect()
        await plain.send(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
        await plain.ended()
        gone = await proxy.connect()
        gone.close()
        with pytest.raises(ssl.SSLCertVerificationError):
            await proxy.connect(ssl=ssl.create_default_context(), server_hostname="a.test")
        await eventually(lambda: sum(proxy.metrics.tls_handshake_failures.values()) == 3)
    assert caplog.records == []
    assert proxy.metrics.tls_handshake_failures == {"http_request": 1, "closed": 2}
    assert proxy.metrics.connections() == 0


async def test_a_handshake_that_does_not_go_on_is_ended(
    proxies: MakeProxy, origin: Origin, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(entrance, "HANDSHAKE_TIMEOUT", 0.1)
    proxy = await secure_proxy(proxies, origin, authority.issue("a", "a.test"))
    wire = await proxy.connect()
    await wire.send(b"\x16\x03\x01")
    assert await wire.ended()
    assert proxy.metrics.tls_handshake_failures == {"timeout": 1}


async def test_more_arrivals_than_connections_allowed_are_turned_away(
    proxies: MakeProxy, origin: Origin, authority: Authority
) -> None:
    proxy = await secure_proxy(proxies, origin, authority.issue("a", "a.test"), max_connections=2)
    waiting = [await proxy.connect() for _ in range(2)]
    await eventually(lambda: proxy.server.arriving == 2)
    assert await (await proxy.connect()).ended()
    waiting[0].close()
    await eventually(lambda: proxy.server.arriving == 1)
    wire = await proxy.connect(ssl=authority.client(), server_hostname="a.test")
    assert (await wire.get()).status == 200


async def test_one_peer_may_not_take_all_places_of_those_who_arrive(
    proxies: MakeProxy, origin: Origin, authority: Authority
) -> None:
    proxy = await secure_proxy(proxies, origin, authority.issue("a", "a.test"), max_connections_per_peer=2)
    waiting = [await proxy.connect() for _ in range(2)]
    await eventually(lambda: proxy.server.arriving == 2)
    assert await (await proxy.connect()).ended()
    other = await proxy.connect(ssl=authority.client(), server_hostname="a.test", local_addr=("127.0.0.2", 0))
    assert (await other.get()).status == 200
    waiting[0].close()
    await eventually(lambda: proxy.server.arriving == 1)
    wire = await proxy.connect(ssl=authority.client(), server_hostname="a.test")
    assert (await wire.get()).status == 200


# -- files that change


async def test_a_renewed_certificate_is_shown_without_a_restart(
    proxies: MakeProxy, origin: Origin, authority: Authority
) -> None:
    proxy = await secure_proxy(proxies, origin, authority.issue("a", "a.test"), authority.issue("b", "b.test"))
    old = await proxy.connect(ssl=authority.client(), server_hostname="b.test")
    before = dict(proxy.metrics.tls_not_after)
    async with following(proxy):
        authority.issue("b", "b.test", "new.test", ends=datetime.now(UTC) + timedelta(days=3))
        await eventually(lambda: proxy.metrics.tls_not_after != before)
        wire = await proxy.connect(ssl=authority.client(), server_hostname="new.test")
    assert names_shown(wire) == {"b.test", "new.test"}
    assert await names_for(proxy, authority, None) == {"a.test"}
    assert (await old.get()).status == 200, "connections go on with what they began with"


async def test_a_broken_renewal_is_refused_and_the_old_certificate_stays(
    proxies: MakeProxy, origin: Origin, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    proxy = await secure_proxy(proxies, origin, authority.issue("a", "a.test"))
    async with following(proxy):
        authority.write("a.key", b"half a k")
        await eventually(lambda: proxy.metrics.tls_reload_failures == 1)
        assert await names_for(proxy, authority, "a.test") == {"a.test"}
        assert [record.message for record in caplog.records if "a.key" in record.message]
        before = dict(proxy.metrics.tls_not_after)
        authority.issue("a", "a.test", "new.test", ends=datetime.now(UTC) + timedelta(days=3))
        await eventually(lambda: proxy.metrics.tls_not_after != before)
        wire = await proxy.connect(ssl=authority.client(), server_hostname="a.test")
    assert names_shown(wire) == {"a.test", "new.test"}


def test_a_broken_file_is_told_of_once_and_one_that_did_not_change_is_not_read_again(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    metrics = Metrics()
    loaded = certificates(Settings(tls_certificates=(authority.issue("a", "a.test"),)), metrics)
    assert loaded is not None
    first = loaded.context
    loaded.reload()
    assert loaded.context is first
    authority.write("a.pem", b"not PEM")
    loaded.reload()
    loaded.reload()
    assert loaded.context is first
    assert metrics.tls_reload_failures == len(caplog.records) == 1


def test_a_certificate_with_a_name_that_cannot_be_read_is_refused_and_the_old_one_stays(
    authority: Authority,
) -> None:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    x400_address = x509.UnrecognizedExtension(x509.ObjectIdentifier("2.5.29.17"), bytes.fromhex("3002a300"))
    key = ec.generate_private_key(ec.SECP256R1())
    nobody = x509.Name([])
    now = datetime.now(UTC)
    odd = (
        x509.CertificateBuilder(nobody, nobody, key.public_key(), 1, now, now + timedelta(days=1))
        .add_extension(x400_address, critical=False)
        .sign(key, hashes.SHA256())
    )
    loaded = certificates(Settings(tls_certificates=(authority.issue("a", "a.test"),)), metrics := Metrics())
    assert loaded is not None
    first = loaded.context
    pem, pkcs8 = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    authority.write("a.key", key.private_bytes(pem, pkcs8, serialization.NoEncryption()))
    authority.write("a.pem", odd.public_bytes(pem))
    loaded.reload()
    assert loaded.context is first
    assert metrics.tls_reload_failures == 1


# -- files that cannot be used


def test_files_that_cannot_be_used_end_the_start_with_one_line(authority: Authority, tmp_path: Path) -> None:
    good, other = authority.issue("a", "a.test"), authority.issue("b", "b.test")
    certificate, other_key = good.partition(":")[0], other.partition(":")[2]
    rubbish = authority.write("rubbish.pem", b"not PEM")
    for faulty, told in {
        f"{tmp_path}/none.pem:{other_key}": "none.pem: No such file or directory",
        f"{certificate}:{other_key}": "the key is not this certificate's",
        f"{rubbish}:{other_key}": "not a certificate and a key in PEM form",
        str(tmp_path): "Is a directory",
    }.items():
        with pytest.raises(ConfigError, match=r"^tls_certificates: ") as caught:
            check_files(Settings(tls_certificates=(good, faulty)))
        assert told in str(caught.value)
        assert "\n" not in str(caught.value)


def test_an_encrypted_key_is_refused_and_nobody_is_asked_for_a_passphrase(authority: Authority) -> None:
    from cryptography.hazmat.primitives.serialization import (
        BestAvailableEncryption,
        Encoding,
        PrivateFormat,
        load_pem_private_key,
    )

    certificate, _, key = authority.issue("a", "a.test").partition(":")
    private = load_pem_private_key(Path(key).read_bytes(), None)
    secret = private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"x"))
    with pytest.raises(ConfigError, match="the key is encrypted"):
        check_files(Settings(tls_certificates=(f"{certificate}:{authority.write('a.key', secret)}",)))


def test_certificate_and_key_may_stand_in_one_file(authority: Authority) -> None:
    certificate, _, key = authority.issue("a", "a.test").partition(":")
    both = authority.write("both.pem", Path(key).read_bytes() + Path(certificate).read_bytes())
    assert certificates(Settings(tls_certificates=(str(both),)), Metrics()) is not None


def test_upstream_files_that_cannot_be_used_end_the_start(authority: Authority, tmp_path: Path) -> None:
    rubbish = authority.write("rubbish.pem", b"not PEM")
    with pytest.raises(ConfigError, match=r"upstream_ca: .*none\.pem: No such file"):
        UpstreamTls(Settings(upstream_ca=tmp_path / "none.pem"), Metrics())
    with pytest.raises(ConfigError, match=r"upstream_ca: .*: no certificates in PEM form"):
        UpstreamTls(Settings(upstream_ca=rubbish), Metrics())
    with pytest.raises(ConfigError, match=r"upstream_certificate: .*rubbish\.pem"):
        UpstreamTls(Settings(upstream_certificate=rubbish), Metrics())


def test_an_expired_certificate_is_served_with_a_warning(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    ended = datetime.now(UTC) - timedelta(days=1)
    metrics = Metrics()
    pair = authority.issue("a", "a.test", ends=ended)
    certificates(Settings(tls_certificates=(pair,)), metrics)
    assert list(metrics.tls_not_after.values()) == [pytest.approx(ended.timestamp(), abs=1)]
    assert "has expired" in caplog.text
