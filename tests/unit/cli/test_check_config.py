"""`slb check-config`: what it shows, and that it fails where `slb serve` would."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from slb.tokens import digest_of
from tests.unit.cli.conftest import Slb


@contextmanager
def other_program(answer: bytes) -> Iterator[str]:
    """A listener that answers each connection so, and closes it; its HOST:PORT."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    with listening.accept()[0] as accepted:
                        accepted.recv(1)
                        accepted.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"127.0.0.1:{listening.getsockname()[1]}"
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            thread.join()


def test_check_config_shows_what_is_in_force_and_masks_secrets(
    slb: Slb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "slb.toml"
    config.write_text('listen = "localhost:0"\napi = "127.0.0.1:2"\napi_token = "s3cret"\n')
    monkeypatch.setenv("SLB_API", "127.0.0.1:0")
    code, out, err = slb("check-config", "--config", str(config), "--redis", "redis://user:s3cret@127.0.0.1:1/1")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert "listen = localhost:0" in lines
    assert "api = 127.0.0.1:0" in lines
    assert "api_token = **********" in lines
    assert "data_register = true" in lines
    assert lines[-1] == "Redis is at redis://user:**********@127.0.0.1:1/1, which does not answer"
    assert "s3cret" not in out


def test_check_config_shows_tokens_by_name_and_right_and_nothing_of_their_secrets(
    slb: Slb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, any_ports: None
) -> None:
    (tmp_path / "secret").write_text("hush-1")
    tokens = tmp_path / "tokens.toml"
    tokens.write_text(
        f"[tokens.ui]\nrights = ['read']\nsecret_file = '{tmp_path}/secret'\n"
        "[tokens.ci]\nrights = ['register', 'metrics']\nprefixes = ['/a', '/b']\nsecret = 'hush-2'\n"
    )
    monkeypatch.setenv("SLB_TOKENS_PATH", str(tokens))
    code, out, _ = slb("check-config")
    assert code == 0
    assert "tokens = ui: read; ci: register /a /b, metrics" in out.splitlines()
    assert "hush" not in out
    assert digest_of("hush-1") not in out
    (tmp_path / "secret").unlink()
    code, out, err = slb("check-config")
    assert (code, out) == (1, "")
    assert err.startswith(f"slb: tokens.ui.secret_file: {tmp_path}/secret cannot be read")


@pytest.mark.parametrize("pair", ["/nowhere.pem", "a:b:c"])
def test_check_config_loads_the_certificates_of_the_api(
    slb: Slb, monkeypatch: pytest.MonkeyPatch, any_ports: None, pair: str
) -> None:
    monkeypatch.setenv("SLB_API_TLS_CERTIFICATES", pair)
    code, _, err = slb("check-config")
    assert code == 1
    assert err.startswith("slb: api_tls_certificates")


def test_check_config_prints_where_an_embedded_redis_is(slb: Slb, tmp_path: Path) -> None:
    _, out, _ = slb("check-config")
    assert out.endswith(f"Redis is embedded, for this machine only, in {tmp_path}/slb/valkey\n")
    _, out, _ = slb("check-config", "--redis", f"embedded://{tmp_path}/other")
    assert out.endswith(f"{tmp_path}/other/valkey\n")


def test_check_config_fails_where_what_is_at_the_address_of_redis_is_something_else(
    slb: Slb, any_ports: None
) -> None:
    with other_program(b"HTTP/1.1 400 Bad Request\r\n\r\n") as address:
        code, out, err = slb("check-config", "--redis", f"redis://{address}")
    assert (code, out) == (1, "")
    assert err == f"slb: Redis at redis://{address} refused: what listens there does not speak the Redis protocol\n"


def test_check_config_fails_where_an_address_is_not_of_this_machine(slb: Slb, any_ports: None) -> None:
    for flag in ("LISTEN", "API"):
        with pytest.MonkeyPatch.context() as changed:
            changed.setenv(f"SLB_{flag}", "192.0.2.1:0")
            code, out, err = slb("check-config")
        assert (code, out) == (1, "")
        assert err.startswith("slb: 192.0.2.1:0 cannot be listened on: ")
        assert err.endswith(f"(setting {flag.lower()})\n")


def test_check_config_goes_by_the_addresses_that_the_roles_listen_on(
    slb: Slb, any_ports: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLB_LISTEN", "192.0.2.1:0")
    monkeypatch.setenv("SLB_ROLES", "quota")
    assert slb("check-config")[0] == 0
    monkeypatch.setenv("SLB_DNS_LISTEN", "127.0.0.1:0,192.0.2.1:0")
    assert slb("check-config")[0] == 0
    monkeypatch.setenv("SLB_ROLES", "dns")
    code, _, err = slb("check-config")
    assert (code, err.partition(" (")[2]) == (1, "setting dns_listen)\n")


def test_check_config_prints_that_an_address_is_in_use_and_does_not_fail_for_it(
    slb: Slb, any_ports: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is run beside the instance that is to read the changed file."""
    with other_program(b"") as address:
        monkeypatch.setenv("SLB_API", address)
        code, _, err = slb("check-config")
    assert (code, err) == (0, f"slb: {address} is in use (setting api): slb serve starts only once it is free\n")


@pytest.mark.parametrize("inside", ["", "/below"])
def test_check_config_fails_where_the_embedded_valkey_has_no_directory_and_makes_none(
    slb: Slb, any_ports: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inside: str
) -> None:
    (tmp_path / "file").write_text("")
    for place in (f"{tmp_path}/file{inside}", f"{tmp_path}/{300 * 'x'}"):
        monkeypatch.setenv("SLB_DATA_DIR", place)
        code, out, err = slb("check-config")
        assert (code, out) == (1, "")
        assert err.startswith(f"slb: data_dir: {place}/valkey cannot be ")
        code, out, err = slb("check-config", "--redis", "redis://127.0.0.1:1")
        assert code == 0
        assert err.endswith("slb serve starts all the same, and keeps no table on disk\n")
    monkeypatch.setenv("SLB_DATA_DIR", f"{tmp_path}/new")
    assert slb("check-config")[0] == 0
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


def test_check_config_fails_where_others_may_write_on_the_way_to_the_embedded_valkey(
    slb: Slb, any_ports: None, tmp_path: Path
) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    for place, fault in (
        (shared / "slb", f"others may replace what is in {shared} (mode 0777): "),
        (shared / "below" / "slb", f"others may replace what is in {shared} (mode 0777): "),
        (shared, f"others may write to {shared} (mode 0777): "),
    ):
        code, out, err = slb("check-config", "--redis", f"embedded://{place}")
        assert (code, out) == (1, "")
        assert err.startswith(f"slb: data_dir: {fault}")
    assert list(shared.iterdir()) == []


def test_check_config_changes_no_mode(slb: Slb, any_ports: None, tmp_path: Path) -> None:
    """`slb serve` closes to others what they may read."""
    places = [tmp_path / "slb", tmp_path / "slb" / "valkey", tmp_path / "other", tmp_path / "other" / "valkey"]
    for place in places:
        place.mkdir()
        place.chmod(0o755)
    for redis in ("embedded://", f"embedded://{tmp_path}/other", "redis://127.0.0.1:1"):
        assert slb("check-config", "--redis", redis)[0] == 0
    assert {place.stat().st_mode & 0o777 for place in places} == {0o755}


def test_check_config_fails_where_the_data_directory_cannot_be_written(
    slb: Slb, any_ports: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.access", lambda *_, **__: False)  # root, as tests may be run, may write to all
    assert slb("check-config") == (1, "", f"slb: data_dir: this user cannot write to {tmp_path}\n")
