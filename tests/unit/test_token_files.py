"""Tokens out of TOML, whatever the files there are."""

import os
from pathlib import Path

import pytest

from slb.config import Settings
from slb.errors import ConfigError
from slb.loading import load_settings
from slb.tokens import digest_of


def load(directory: Path, text: str = "", environ: dict[str, str] | None = None) -> tuple[Settings, list[str]]:
    """The settings of a file with `text`, and the names of the files that were read for it."""
    config, noted = directory / "slb.toml", list[Path]()
    config.write_text(text)
    settings = load_settings({}, environ or {}, config, noted.append)
    return settings, [each.name for each in noted]


def fault(directory: Path, text: str = "", environ: dict[str, str] | None = None) -> str:
    with pytest.raises(ConfigError) as caught:
        load(directory, text, environ)
    return str(caught.value)


def written(file: Path, text: str) -> Path:
    file.parent.mkdir(exist_ok=True)
    file.write_text(text)
    return file


def table(name: str, secret: str = "") -> str:
    return f'[tokens.{name}]\nrights = ["read"]\nsha256 = "{digest_of(secret or name)}"\n'


def test_a_secret_is_given_as_its_hash_as_a_file_or_as_a_text_and_never_kept(tmp_path: Path) -> None:
    file = written(tmp_path / "secret", "from-a-file\n")
    text = f'[tokens.a]\nrights = ["read"]\nsecret = "in-plain"\nsecret_file = "{file}"\nsha256 = "{"0" * 64}"\n'
    settings, noted = load(tmp_path, text)
    assert settings.tokens["a"].sha256 == (digest_of("in-plain"), digest_of("from-a-file"), "0" * 64)
    assert noted == ["slb.toml", "secret"]
    assert "in-plain" not in repr(settings)


def test_tokens_of_the_config_and_those_of_a_file_hold_together(tmp_path: Path) -> None:
    file = written(tmp_path / "tokens.toml", table("b"))
    settings, noted = load(tmp_path, table("a"), {"SLB_TOKENS_PATH": str(file)})
    assert sorted(settings.tokens) == ["a", "b"]
    assert noted == ["slb.toml", "tokens.toml", "tokens.toml"]


def test_a_directory_has_tokens_in_each_toml_file_of_it(tmp_path: Path) -> None:
    """As Kubernetes mounts a secret: links to what lies in a directory whose name begins with dots."""
    for name in ("a", "b"):
        (tmp_path / "d").mkdir(exist_ok=True)
        (tmp_path / "d" / f"{name}.toml").symlink_to(
            written(tmp_path / "d" / "..data" / f"{name}.toml", table(name))
        )
    written(tmp_path / "d" / ".c.toml", "no TOML")
    written(tmp_path / "d" / "README", "no TOML")
    settings, noted = load(tmp_path, f'tokens_path = "{tmp_path / "d"}"\n')
    assert sorted(settings.tokens) == ["a", "b"]
    assert noted == ["slb.toml", "d", "a.toml", "b.toml"]


@pytest.mark.parametrize("text", ["", "[tokens]\n"])
def test_a_file_without_tokens_is_refused_rather_than_open_the_api(tmp_path: Path, text: str) -> None:
    file = written(tmp_path / "tokens.toml", text)
    assert "has no tokens" in fault(tmp_path, table("a"), {"SLB_TOKENS_PATH": str(file)})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x = 1\n" + table("b"), "has x, and only [tokens.NAME] is read"),
        ("tokens = 1", "has tokens, and only [tokens.NAME] is read"),
        (table("a"), "there is a token a elsewhere"),
        ("tokens = [", "tokens.toml: "),
        (
            "[tokens.b]\nrights = ['read']\nsecret_file = '/nowhere/x'",
            "tokens.b.secret_file: /nowhere/x cannot be read",
        ),
        ("[tokens.b]\nrights = ['read']\nsecret_file = 5", "tokens.b.secret_file: it is empty, or no text"),
        ("[tokens.b]\nrights = ['read']\nsecret = ' '", "tokens.b.secret: it is empty"),
        ("[tokens.b]\nrights = ['read']\n", "tokens.b.sha256: Field required"),
        ("[tokens.b]\nrights = ['reed']\nsecret = 'hush'", "tokens.b.rights: Input should be 'read'"),
        ("[tokens.b]\nrights = ['read']\nsecret = ['hush']", "tokens.b.secret: it is empty, or no text"),
        ("[tokens.'b c']\nrights = ['read']\nsecret = 'hush'", "a token's name has letters"),
        ("[tokens.api_token]\nrights = ['read']\nsecret = 'hush'", "api_token is the name of the token"),
        ("[tokens.b]\nrights = ['read']\nsecret = 'a'", "a and b have the same secret"),
        (
            "[tokens.b]\nrights = ['read']\nsecret = 'the-one'",
            "api_token and b have the same secret; keep it out of api_token: commands read SLB_TOKEN",
        ),
    ],
)
def test_what_is_wrong_is_said_in_one_line_that_has_no_secret(tmp_path: Path, text: str, said: str) -> None:
    file = written(tmp_path / "tokens.toml", text)
    environ = {"SLB_TOKENS_PATH": str(file), "SLB_API_TOKEN": "the-one"}
    line = fault(tmp_path, table("a"), environ)
    assert said in line
    assert "\n" not in line
    assert "hush" not in line


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    assert fault(tmp_path, 'tokens_path = "/nowhere/tokens"').startswith("tokens_path: /nowhere/tokens")


def test_a_secret_file_that_is_empty_is_not_mounted_yet(tmp_path: Path) -> None:
    file = written(tmp_path / "secret", "\n")
    line = fault(tmp_path, f'[tokens.a]\nrights = ["read"]\nsecret_file = "{file}"\n')
    assert line == f"tokens.a.secret_file: {file}: it is empty, or no text"


@pytest.mark.parametrize("variable", ["SLB_TOKENS", "SLB_TOKENS_FILE"])
def test_tables_of_tokens_are_not_read_from_the_environment(tmp_path: Path, variable: str) -> None:
    assert "SLB_TOKENS_PATH" in fault(tmp_path, environ={variable: "x"})


def test_a_pipe_or_a_file_without_end_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.toml")
    pipe = fault(tmp_path, f'tokens_path = "{tmp_path}/pipe.toml"\n')
    assert pipe == f"tokens_path: {tmp_path}/pipe.toml: it is not a regular file"
    secret = '[tokens.a]\nrights = ["read"]\nsecret_file = "/dev/zero"\n'
    refused = "tokens.a.secret_file: /dev/zero cannot be read: it is not a regular file"
    assert fault(tmp_path, secret) == refused
    with (tmp_path / "huge.toml").open("wb") as huge:
        huge.truncate(1 << 30)
    assert "has more than 16777216 bytes" in fault(tmp_path, f'tokens_path = "{tmp_path}/huge.toml"\n')
