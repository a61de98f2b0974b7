"""Tokens out of TOML: of tables, of files and directories of them, and the files that hold their secrets."""

import tomllib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from slb.errors import ConfigError
from slb.regular_files import read_file
from slb.tokens import digest_of

Note = Callable[[Path], None]
"""Called with each file and directory before it is read: what it says holds only until that changes."""


def read_tokens(tables: Any, path: str | Path | None, note: Note) -> Any:
    """`tables`, and those that `path` leads to, by name, with digests in the place of secrets. Raises ConfigError,
    also where `path` leads to none: a secret that is not mounted yet would open the API."""
    found = dict(tables) if isinstance(tables, Mapping) else tables
    if path is not None:
        found = _together(found or {}, Path(path), note)
    if not isinstance(found, Mapping):
        return found
    return {name: _without_secrets(name, table, note) for name, table in found.items()}


def _together(found: dict[str, Any], path: Path, note: Note) -> dict[str, Any]:
    before = len(found)
    for file in _files(path, note):
        for name, table in _tables_of(file, note).items():
            if name in found:
                raise ConfigError(f"tokens_path: {file}: there is a token {name} elsewhere; give one another name")
            found[name] = table
    if len(found) == before:
        raise ConfigError(f"tokens_path: {path} has no tokens: write [tokens.NAME] there, as slb token make prints")
    return found


def _files(path: Path, note: Note) -> Iterable[Path]:
    """The file itself, or those of a directory: of a mounted secret that leaves out what begins with a dot."""
    note(path)
    try:
        if path.is_dir():
            return sorted(each for each in path.iterdir() if each.suffix == ".toml" and each.name[0] != ".")
    except OSError as error:
        raise ConfigError(f"tokens_path: {path}: {error.strerror}") from None
    return [path]


def _tables_of(file: Path, note: Note) -> Mapping[str, Any]:
    note(file)
    try:
        read = tomllib.loads(read_file(file).decode())
    except OSError as error:
        raise ConfigError(f"tokens_path: {file}: {error.strerror}") from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError(f"tokens_path: {file}: {error}") from None
    tables = read.pop("tokens", {})
    if read or not isinstance(tables, Mapping):
        raise ConfigError(f"tokens_path: {file}: has {next(iter(read), 'tokens')}, and only [tokens.NAME] is read")
    return tables


def _without_secrets(name: str, table: Any, note: Note) -> Any:
    """A token's table with the SHA-256 of `secret`, and of what `secret_file` holds, among `sha256`."""
    if not isinstance(table, Mapping):
        return table
    rest = {key: value for key, value in table.items() if key not in ("secret", "secret_file")}
    secrets = [_text(name, "secret", table["secret"])] if "secret" in table else []
    if "secret_file" in table:
        secrets.append(_content(name, Path(_text(name, "secret_file", table["secret_file"])), note))
    given = rest.get("sha256", [])
    known = given if isinstance(given, list) else [given]
    return {**rest, "sha256": [*map(digest_of, secrets), *known]} if secrets else rest


def _text(name: str, key: str, value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ConfigError(f"tokens.{name}.{key}: it is empty, or no text")
    return value.strip()


def _content(name: str, file: Path, note: Note) -> str:
    note(file)
    try:
        return _text(name, f"secret_file: {file}", read_file(file).decode())
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise ConfigError(f"tokens.{name}.secret_file: {file} cannot be read: {why}") from None
