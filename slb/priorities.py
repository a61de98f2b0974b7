"""The classes requests may be of and what each weighs, written `critical=8,normal=3,batch=1`."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from slb.errors import InvalidName

Priorities = tuple[tuple[str, int], ...]  # class and weight, the heaviest first; empty: all are of one class

MAX_CLASSES = 16
MAX_WEIGHT = 1000
CLASS_PATTERN = r"[a-z0-9_-]{1,32}"

_CLASS = re.compile(CLASS_PATTERN)
_WEIGHT = re.compile(r"[0-9]{1,9}")


def priorities(written: Any) -> Priorities:
    """Read a text like `critical=8,normal=3`, or a table of class to weight. Raises InvalidName."""
    pairs = list(_pairs(written))
    if len(pairs) > MAX_CLASSES:
        raise InvalidName(f"{len(pairs)} classes are more than {MAX_CLASSES}")
    weights: dict[str, int] = {}
    for name, weight in pairs:
        if name in weights:
            raise InvalidName(f"class {name!r} is there twice")
        weights[_class(name)] = _weight(name, weight)
    return tuple(sorted(weights.items(), key=lambda each: (-each[1], each[0])))


def written_priorities(classes: Priorities) -> str:
    """The text `priorities` reads back."""
    return ",".join(f"{name}={weight}" for name, weight in classes)


def _pairs(written: Any) -> Iterable[tuple[Any, Any]]:
    if isinstance(written, Mapping):
        return written.items()
    if isinstance(written, str):
        return map(_split, written.split(",")) if written.strip() else ()
    raise InvalidName("priorities are a table of class to weight, or written like critical=8,normal=3")


def _split(text: str) -> tuple[str, str]:
    name, equals, weight = text.partition("=")
    if not equals:
        raise InvalidName(f"{text.strip()!r} is not written CLASS=WEIGHT")
    return name.strip(), weight.strip()


def _class(name: Any) -> str:
    if not isinstance(name, str) or not _CLASS.fullmatch(name):
        raise InvalidName(f"class {name!r} is not of 1 to 32 of a-z, 0-9, '_' and '-'")
    return name


def _weight(name: str, weight: Any) -> int:
    """Digits or a whole number; true is none, though Python counts it as 1."""
    whole = isinstance(weight, int) and not isinstance(weight, bool)
    if whole or (isinstance(weight, str) and _WEIGHT.fullmatch(weight)):
        number = int(weight)
        if 1 <= number <= MAX_WEIGHT:
            return number
    raise InvalidName(f"the weight of {name!r} is {weight!r}, not a whole number from 1 to {MAX_WEIGHT}")
