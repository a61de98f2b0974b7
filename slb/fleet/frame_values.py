"""Single values of what others publish: the right types, bounded. All raise ValueError or TypeError for others."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

_LONGEST_NAME = 2048  # a path
_LONGEST_TEXT = 300
_LONGEST_KEY = 128  # of a number: the state of a job, or why one failed
_LARGEST = 1e15
_MOST = 100

Shape = Mapping[str, Any]
"""Name -> what stands there where nothing of its type was sent: a text, a number, None (for a number or none), a
boolean, an empty list (of texts) or an empty object (of numbers); and a list with a shape in it: no object of that
shape, or some."""


def name_of(value: Any, longest: int = _LONGEST_NAME) -> str:
    if type(value) is not str or len(value) > longest:
        raise ValueError("no name")
    return value


def text_of(value: Any) -> str:
    if type(value) is not str:
        raise ValueError("no text")
    return value[:_LONGEST_TEXT]


def number(value: Any) -> float:
    """A number that can be added up."""
    if (type(value) is int or type(value) is float) and -_LARGEST < value < _LARGEST:
        return value
    raise ValueError("no number")


def listed(value: Any, most: int = _MOST) -> Sequence[Any]:
    if type(value) is not list or len(value) > most:
        raise ValueError("no list")
    return value


def mapped(value: Any, read_one: Callable[[Any], Any]) -> dict[str, Any]:
    if type(value) is not dict or len(value) > _MOST:
        raise ValueError("no object")
    return {name_of(name, _LONGEST_KEY): read_one(each) for name, each in value.items()}


def shaped(value: Any, shape: Shape) -> dict[str, Any]:
    """The fields of `shape`, and no others."""
    if type(value) is not dict:
        raise ValueError("no object")
    return {name: _like(value.get(name), default) for name, default in shape.items()}


def _like(value: Any, default: Any) -> Any:
    if value is None:
        return [] if isinstance(default, list) else default
    match default:
        case bool():
            return value is True
        case str():
            return text_of(value)
        case [shape]:
            return [shaped(each, shape) for each in listed(value)]
        case list():
            return [text_of(each) for each in listed(value)]
        case dict():
            return mapped(value, number)
        case _:
            return number(value)
