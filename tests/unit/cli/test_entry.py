"""The command line without a server: what is printed, and with which exit code."""

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import typer

from slb.build import build
from slb.cli.entry import app
from slb.standin import Place
from tests.unit.cli.conftest import Server, Slb


def test_it_prints_its_version(slb: Slb) -> None:
    assert slb("--version") == (0, f"slb {build()}\n", "")


def test_alone_it_lists_its_commands(slb: Slb) -> None:
    code, out, err = slb()
    assert (code, err) == (0, "")
    commands = "serve upstream register deregister routes route status instances check-config reset demo"
    assert all(f"\n  {command} " in out for command in commands.split())
    assert "worker" not in out


@pytest.mark.parametrize("name", ["jobs", "quota"])
def test_a_group_alone_is_its_help_and_no_server_whatever_the_environment_says(
    slb: Slb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    for variable, value in {"SLB_URL": "http://127.0.0.1:1", "SLB_CONFIG": "/nowhere", "SLB_API": "x"}.items():
        monkeypatch.setenv(variable, value)
    code, out, err = slb(name)
    assert (code, err) == (2, f"slb: slb {name} takes a command; the server is slb serve --roles {name}\n")
    assert out.startswith(f"Usage: slb {name} ")
    assert not any(tmp_path.iterdir())


def _commands(group: Any = None, words: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Every command and group there is, as it is typed."""
    group = group or typer.main.get_command(app)
    yield words
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _commands(command, (*words, name))
        else:
            yield (*words, name)


@pytest.mark.parametrize("words", list(_commands()), ids=" ".join)
@pytest.mark.parametrize("width", ["60", "80"])
def test_h_and_help_print_the_same_and_cut_nothing_off(
    slb: Slb, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], width: str
) -> None:
    monkeypatch.setenv("COLUMNS", width)
    code, out, err = slb(*words, "-h")
    assert (code, err) == (0, "")
    assert slb(*words, "--help") == (0, out, "")
    usage, _, text = out.partition("\n\n")
    assert usage.startswith(f"Usage: {' '.join(('slb', *words))} ")
    assert re.search(r"\.\.\.$", text, re.MULTILINE) is None
    assert max(map(len, out.splitlines())) <= int(width)


def test_a_shell_can_complete_its_commands(slb: Slb, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"_SLB_COMPLETE": "complete_bash", "COMP_WORDS": "slb d", "COMP_CWORD": "1"}.items():
        monkeypatch.setenv(name, value)
    code, out, err = slb()
    assert (code, sorted(out.split()), err) == (0, ["demo", "deregister", "diff", "discover", "dns", "drain"], "")


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        (("serve", "--bogus"), "--bogus"),
        (("serve", "--workers", "many"), "--workers"),
        (("bogus",), "bogus"),
        (("register", "/p"), "Missing argument"),
        (("register", "10.0.0.1:80", "/p"), "the path comes first: slb register /p 10.0.0.1:80"),
        (("deregister", "a", "b", "/p q"), "the path comes first: slb deregister '/p q' a b"),
        (("upstream", "--slots", "0"), "--slots"),
        (("upstreams", "--dead", "--token-to", "x"), "--token-to: 'x'"),
        (("route", "set", "/p", "policy"), "'policy' is not KEY=VALUE"),
        (("status", "--url", "http://127.0.0.1:99999"), "is not a URL"),
        (("status", "--url", "http://127.0.0.1:0"), "is not a URL"),
        (("status", "--url", "http://[::1"), "is not a URL"),
        (("upstream", "--register", "127.0.0.1:8080"), "'127.0.0.1:8080' is not a URL such as http://"),
        (("upstream", "--register", ""), "'' is not a URL such as http://"),
        (("register", "/p", "h", "--url", "ftp://x"), "is not a URL"),
    ],
)
def test_words_it_does_not_know_are_one_line_and_exit_code_2(
    slb: Slb, arguments: tuple[str, ...], fault: str
) -> None:
    code, out, err = slb(*arguments)
    assert (code, out) == (2, "")
    assert err.startswith("slb: ")
    assert fault in err
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        (("serve", "--workers", "0"), "workers = 0"),
        (("serve", "--listen", "8080"), "listen = '8080'"),
        (("serve", "--listen", "127.0.0.1:9", "--api", "127.0.0.1:9"), "listen and api are both 127.0.0.1:9"),
        (("serve", "--access-log", "some"), "access_log"),
        (("serve", "--drain-timeout", "5"), "drain_timeout"),
        (("serve", "--roles", "juggler"), "roles"),
        (("serve", "--config", "/nowhere/slb.toml"), "config file /nowhere/slb.toml"),
        (("serve", "--redis", "http://:secret@h"), "redis_url"),
        (("serve", "--listen", "no.such.host.invalid:80", "--api", "127.0.0.1:0"), "setting listen"),
        (("check-config", "--redis", "redis://:secret@h:x"), "redis_url"),
        (("check-config", "--redis", "redis://:secret@h?foo=5"), "'foo'"),
        (("serve", "--redis", "redis://:secret@h?foo=5"), "'foo'"),
        (("register", "/\udcff", "192.0.2.4"), "cannot be sent"),
        (("deregister", "/p", "\udcff"), "cannot be sent"),
        (("upstream", "--listen", "8080"), "HOST:PORT"),
        (("upstream", "--listen", "0.0.0.0:0", "--register", "http://127.0.0.1:1"), "--advertise HOST:PORT"),
        (("upstream", "--listen", ":0", "--register", "http://127.0.0.1:1"), "--advertise HOST:PORT"),
        (("upstream", "--listen", "[::]:0", "--register", "http://127.0.0.1:1"), "--advertise HOST:PORT"),
        (("reset", "--data-dir", "/" + 300 * "x"), "data_dir: "),
    ],
)
def test_what_cannot_be_done_is_one_line_and_exit_code_1(slb: Slb, arguments: tuple[str, ...], fault: str) -> None:
    listen = ("--listen", "127.0.0.1:0", "--api", "127.0.0.1:0") if "--redis" in arguments else ()
    code, out, err = slb(*arguments, *(listen if arguments[0] == "serve" else ()))
    assert (code, out) == (1, "")
    assert err.startswith("slb: ")
    assert fault in err
    assert "secret" not in err
    assert len(err.splitlines()) == 1


def test_what_slb_sets_itself_may_stand_in_the_url_of_redis(slb: Slb, any_ports: None) -> None:
    url = "redis://127.0.0.1:1?max_connections=5&timeout=5"
    code, out, err = slb("check-config", "--redis", url)
    assert (code, err) == (0, "")
    assert out.endswith(f"Redis is at {url}, which does not answer\n")


def test_an_upstream_reads_the_token_it_registers_with_from_a_file(
    slb: Slb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "token").write_text("s3cret\n")
    monkeypatch.setenv("SLB_TOKEN_FILE", str(tmp_path / "token"))
    places: list[Place] = []

    def run_stand_in(place: Place, *_: object) -> int:
        places.append(place)
        return 0

    monkeypatch.setattr("slb.standin.run_stand_in", run_stand_in)
    assert slb("upstream", "--register", "http://127.0.0.1:1")[0] == 0
    assert slb("upstream", "--register", "http://127.0.0.1:1", "--token", "other")[0] == 0
    assert [place.token for place in places] == ["s3cret", "other"]


def test_a_client_names_the_file_of_its_token_where_it_has_none(
    slb: Slb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "token"
    monkeypatch.setenv("SLB_TOKEN_FILE", str(file))
    why = f"slb: SLB_TOKEN_FILE: {file} cannot be read: No such file or directory\n"
    assert slb("routes") == (1, "", why)
    file.write_text("\n")
    assert slb("routes") == (1, "", f"slb: SLB_TOKEN_FILE: {file} is empty\n")


@pytest.mark.parametrize("suffix", ["", "_FILE"])
def test_commands_read_a_token_of_their_own_and_the_servers_with_a_warning(
    slb: Slb, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    (tmp_path / "own").write_text("own\n")
    (tmp_path / "servers").write_text("servers\n")
    values = (
        {"own": "own", "servers": "servers"} if not suffix else {k: str(tmp_path / k) for k in ("own", "servers")}
    )
    server.answer = {"routes": []}
    monkeypatch.setenv(f"SLB_API_TOKEN{suffix}", values["servers"])
    warning = f"slb: SLB_API_TOKEN{suffix} is for servers, and commands read it in this release only: use "
    assert slb("routes", "--json")[::2] == (0, f"{warning}SLB_TOKEN{suffix}\n")
    assert slb("routes", "--json", "--token", "typed")[::2] == (0, "")
    monkeypatch.setenv(f"SLB_TOKEN{suffix}", values["own"])
    assert slb("routes", "--json")[::2] == (0, "")
    assert server.shown == ["Bearer servers", "Bearer typed", "Bearer own"]


def test_a_token_that_looks_meant_for_commands_is_named_where_a_server_would_take_it(
    slb: Slb, any_ports: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLB_API_TOKEN", "s3cret")
    assert slb("check-config")[::2] == (0, "")
    monkeypatch.setenv("SLB_URL", "http://127.0.0.1:1")
    code, _, err = slb("check-config")
    why = "with SLB_URL it looks meant for commands, which read SLB_TOKEN; here it has all rights"
    assert (code, err) == (0, f"slb: SLB_API_TOKEN is the token of slb serve: {why}\n")


def test_a_setting_that_does_not_exist_is_named(slb: Slb, tmp_path: Path) -> None:
    config = tmp_path / "slb.toml"
    config.write_text("colour = 'red'\n")
    assert slb("check-config", "--config", str(config)) == (
        1,
        "",
        "slb: colour: there is no setting of this name\n",
    )


def test_a_variable_that_is_nearly_a_setting_is_logged_and_ends_nothing(
    slb: Slb, any_ports: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLB_WORKRES", "2")
    code, out, err = slb("check-config")
    assert code == 0
    assert "workers = 1" in out.splitlines()
    assert err == "slb: SLB_WORKRES sets nothing; is SLB_WORKERS meant?\n"


def test_reset_makes_no_directory_where_there_was_none(slb: Slb, tmp_path: Path) -> None:
    typo = tmp_path / "tyop"
    for words in (("--data-dir", str(typo)), ("--redis", f"embedded://{typo}")):
        code, out, err = slb("reset", "--yes", *words)
        assert (code, out) == (1, "")
        assert err == f"slb: data_dir: there is no embedded Valkey to reset in {typo}/valkey\n"
        assert not typo.exists()


@pytest.mark.parametrize("command", ["serve", "reset", "quota"])
def test_a_data_directory_that_may_not_be_read_is_reported_like_every_fault_of_it(
    slb: Slb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setattr("os.access", lambda *_, **__: False)  # root, as tests may be run, may read all
    monkeypatch.setenv("SLB_API", "127.0.0.1:0")
    monkeypatch.setenv("SLB_LISTEN", "127.0.0.1:0")
    (tmp_path / "slb").write_text("")
    code, out, err = slb(command, "--data-dir", str(tmp_path / "slb"))
    assert (code, out) == (1, "")
    assert err.splitlines()[-1].startswith("slb: data_dir: ")


def test_reset_without_a_terminal_prints_what_to_type(slb: Slb, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", StringIO("y\n"))
    code, out, err = slb("reset", "--redis", "redis://127.0.0.1:1")
    assert (code, out) == (2, "")
    assert err.endswith("use --yes\n")


_INTERRUPTED_WHILE_IT_IMPORTS = """
import signal, sys
class Importing:
    @staticmethod
    def find_spec(name, path, target=None):
        if name == "slb.cli":
            signal.raise_signal(signal.SIGINT)
sys.meta_path.insert(0, Importing)
from slb.__main__ import main
main()
"""


def test_a_ctrl_c_before_it_has_begun_is_its_end_and_prints_nothing() -> None:
    ended = subprocess.run([sys.executable, "-c", _INTERRUPTED_WHILE_IT_IMPORTS], capture_output=True)
    assert (ended.returncode, ended.stdout, ended.stderr) == (-signal.SIGINT, b"", b"")
