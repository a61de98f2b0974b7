"""Tokens of the API: what each may do, and whose a secret is.

Of a secret only its SHA-256 is kept. Whose a request's secret is, is looked up by that, under a key that each
keyring makes for itself: the cost does not grow with the number of tokens, and the time it takes tells nothing of
them.
"""

import hashlib
import os
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Literal, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from slb.names import normal_path
from slb.setting_types import COMMAS, LONGEST_PATH

Right = Literal["read", "metrics", "register", "jobs", "quota", "admin"]
RIGHTS: tuple[Right, ...] = get_args(Right)
API_TOKEN = "api_token"
MOST_TOKENS = 1000
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_OF_NOTHING = hashlib.sha256().hexdigest()

_Path = Annotated[str, Field(max_length=LONGEST_PATH), AfterValidator(normal_path)]


def _checked_digest(text: str) -> str:
    if text == _OF_NOTHING:
        raise ValueError("it is that of an empty text, as an unset variable gives: everybody would have it")
    return text


_Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$"), AfterValidator(_checked_digest)]


def _checked_name(text: str) -> str:
    if not _NAME.fullmatch(text):
        raise ValueError("a token's name has letters, digits, _ and -, 64 at most")
    if text == API_TOKEN:
        raise ValueError(f"{API_TOKEN} is the name of the token that the setting gives")
    return text


TokenName = Annotated[str, AfterValidator(_checked_name)]


def digest_of(secret: str) -> str:
    """The SHA-256 of a secret as settings have it: 64 hexadecimal digits."""
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()


class Token(BaseModel):
    """What stands under `[tokens.NAME]`. `prefixes`: of `register`, the paths it is for, and those below them.
    `sha256`: of its secret; while one is replaced, of both."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    rights: Annotated[tuple[Right, ...], COMMAS, Field(min_length=1)]
    prefixes: Annotated[tuple[_Path, ...], COMMAS, Field(max_length=100)] = ()
    sha256: Annotated[tuple[_Digest, ...], COMMAS, Field(min_length=1, max_length=8, repr=False)]

    @model_validator(mode="after")
    def _fits_together(self) -> "Token":
        if "register" in self.rights and not self.prefixes:
            raise ValueError('register: say with prefixes for which paths; ["/"] is for all')
        if self.prefixes and "register" not in self.rights:
            raise ValueError("prefixes: they are those of the right register, which rights leaves out")
        return self

    def shown(self) -> str:
        """Its rights, for a person: `read, register /models/flux`."""
        paths = "".join(f" {each}" for each in self.prefixes)
        return ", ".join(f"{each}{paths if each == 'register' else ''}" for each in self.rights)


@dataclass(frozen=True, slots=True)
class Holder:
    """Who asks, by the token's `name`; it is empty where none is asked for. `prefixes`: of the right register."""

    name: str
    rights: frozenset[Right]
    prefixes: tuple[str, ...] = ()

    def has_any(self, rights: Collection[str]) -> bool:
        """Whether it has one of `rights`; `admin` is all of them."""
        return "admin" in self.rights or not self.rights.isdisjoint(rights)

    def covers(self, path: str) -> bool:
        """Whether it may register at the route `path`, which is in normal form."""
        if "admin" in self.rights:
            return True
        return "register" in self.rights and any(_is_below(path, each) for each in self.prefixes)


NOBODY = Holder("", frozenset({"admin"}))
"""Of this machine, where no token is asked for."""


def _is_below(path: str, prefix: str) -> bool:
    return prefix == "/" or path == prefix or path.startswith(f"{prefix}/")


class Keyring:
    """The tokens that hold, by their secrets. `api_token`: its text, empty where there is none."""

    def __init__(self, api_token: str, tokens: Mapping[str, Token]) -> None:
        self._key = os.urandom(32)
        self._holders: dict[bytes, Holder] = {}
        if api_token:
            self._add(Holder(API_TOKEN, frozenset({"admin"})), [digest_of(api_token)])
        for name, token in tokens.items():
            self._add(Holder(name, frozenset(token.rights), token.prefixes), token.sha256)

    def __bool__(self) -> bool:
        """Whether there is any token."""
        return bool(self._holders)

    def holder(self, secret: str) -> Holder | None:
        """Whose secret this is; None where it is nobody's."""
        return self._holders.get(self._place(digest_of(secret)))

    def _add(self, holder: Holder, digests: Iterable[str]) -> None:
        for each in digests:
            self._holders[self._place(each)] = holder

    def _place(self, digest: str) -> bytes:
        return hashlib.blake2b(digest.encode(), key=self._key, digest_size=32).digest()


def check_distinct(tokens: Mapping[str, Token], api_token: str) -> None:
    """Raises ValueError where two tokens have one secret: which of them asks could not be told."""
    owners = {digest_of(api_token): API_TOKEN} if api_token else {}
    for name, token in tokens.items():
        for digest in token.sha256:
            if (other := owners.setdefault(digest, name)) != name:
                mend = (
                    "keep it out of api_token: commands read SLB_TOKEN"
                    if other == API_TOKEN
                    else "give each its own"
                )
                raise ValueError(f"tokens: {other} and {name} have the same secret; {mend}")
