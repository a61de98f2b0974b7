"""Certificate files: renewed while the proxy runs, and those that cannot be used."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from slb.config import Settings
from slb.errors import ConfigError
from slb.observe.metrics import Metrics
from slb.proxy.tls import certificates, check_files
from slb.upstreams.tls import UpstreamTls
from tests.proxy.harness import MakeProxy, Origin
from tests.proxy.tls_rig import following, names_for, names_shown, secure_proxy
from tests.support.certificates import Authority
from tests.support.waiting import eventually


async def test_a_renewed_certificate_is_shown_without_a_restart(
    proxies: MakeProxy, origin: Origin, authority: Authority
) -> None:
    proxy = await secure_proxy(proxies, origin, authority.issue("a", "a.test"), authority.issue("b", "b.test"))
    old = await proxy.connect(ssl=authority.client(), server_hostname="b.test")
    before = dict(proxy.metrics.tls.not_after)
    async with following(proxy):
        authority.issue("b", "b.test", "new.test", ends=datetime.now(UTC) + timedelta(days=3))
        await eventually(lambda: proxy.metrics.tls.not_after != before)
        wire = await proxy.connect(ssl=authority.client(), server_hostname="new.test")
    assert names_shown(wire) == {"b.test", "new.test"}
    assert await names_for(proxy, authority, None) == {"a.test"}
    assert (await old.get()).status == 200, "connections go on with what they began with"


async def test_a_broken_renewal_is_refused_and_the_old_certificate_stays(
    proxies: MakeProxy, origin: Origin, authority: Authority
) -> None:
    proxy = await secure_proxy(proxies, origin, authority.issue("a", "a.test"))
    async with following(proxy):
        with capture_logs() as logged:
            authority.write("a.key", b"half a k")
            await eventually(lambda: proxy.metrics.tls.reload_failures == 1)
        assert await names_for(proxy, authority, "a.test") == {"a.test"}
        assert [line["event"] for line in logged if "a.key" in line["error"]] == ["certificate_refused"]
        before = dict(proxy.metrics.tls.not_after)
        authority.issue("a", "a.test", "new.test", ends=datetime.now(UTC) + timedelta(days=3))
        await eventually(lambda: proxy.metrics.tls.not_after != before)
        wire = await proxy.connect(ssl=authority.client(), server_hostname="a.test")
    assert names_shown(wire) == {"a.test", "new.test"}


def test_a_broken_file_is_logged_once_and_one_that_did_not_change_is_not_read_again(authority: Authority) -> None:
    metrics = Metrics()
    loaded = certificates(Settings(tls_certificates=(authority.issue("a", "a.test"),)), metrics)
    assert loaded is not None
    first = loaded.context
    loaded.reload()
    assert loaded.context is first
    authority.write("a.pem", b"not PEM")
    with capture_logs() as logged:
        loaded.reload()
        loaded.reload()
    assert loaded.context is first
    assert metrics.tls.reload_failures == len(logged) == 1


def test_a_certificate_with_a_name_that_cannot_be_read_is_refused_and_the_old_one_stays(
    authority: Authority,
) -> None:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    x400_address = x509.UnrecognizedExtension(x509.ObjectIdentifier("2.5.29.17"), bytes.fromhex("3002a300"))
    key = ec.generate_private_key(ec.SECP256R1())
    no_name = x509.Name([])
    now = datetime.now(UTC)
    odd = (
        x509.CertificateBuilder(no_name, no_name, key.public_key(), 1, now, now + timedelta(days=1))
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
    assert metrics.tls.reload_failures == 1


def test_files_that_cannot_be_used_end_the_start_with_one_line(authority: Authority, tmp_path: Path) -> None:
    good, other = authority.issue("a", "a.test"), authority.issue("b", "b.test")
    certificate, other_key = good.partition(":")[0], other.partition(":")[2]
    rubbish = authority.write("rubbish.pem", b"not PEM")
    for faulty, fault in {
        f"{tmp_path}/none.pem:{other_key}": "none.pem: No such file or directory",
        f"{certificate}:{other_key}": "the key is not this certificate's",
        f"{rubbish}:{other_key}": "not a certificate and a key in PEM form",
        str(tmp_path): "Is a directory",
    }.items():
        with pytest.raises(ConfigError, match=r"^tls_certificates: ") as caught:
            check_files(Settings(tls_certificates=(good, faulty)))
        assert fault in str(caught.value)
        assert "\n" not in str(caught.value)


def test_an_encrypted_key_is_refused_without_asking_for_a_passphrase(authority: Authority) -> None:
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


def test_files_of_both_sides_are_checked_at_the_start(authority: Authority, tmp_path: Path) -> None:
    own = authority.issue("a", "a.test")
    check_files(Settings(tls_certificates=(own,), upstream_ca=Path(own.partition(":")[0])))
    with pytest.raises(ConfigError, match="upstream_ca: "):
        check_files(Settings(tls_certificates=(own,), upstream_ca=tmp_path / "none.pem"))


def test_an_expired_certificate_is_served_with_a_warning(authority: Authority) -> None:
    ended = datetime.now(UTC) - timedelta(days=1)
    metrics = Metrics()
    pair = authority.issue("a", "a.test", ends=ended)
    with capture_logs() as logged:
        certificates(Settings(tls_certificates=(pair,)), metrics)
    assert list(metrics.tls.not_after.values()) == [pytest.approx(ended.timestamp(), abs=1)]
    ((event, file),) = [(line["event"], line["file"]) for line in logged]
    assert (event, f"{file}:{pair.partition(':')[2]}") == ("certificate_expired", pair)
