"""What an object keeps alive, whatever it calls its parts."""

import gc
import types
from collections.abc import Iterator
from typing import TypeVar

_SHARED = (type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType)
"""Lead to all there is."""

T = TypeVar("T")


def kept(owner: object) -> Iterator[object]:
    """Each object that `owner` leads to, once, without `owner`; not what functions, classes and modules lead to."""
    seen, found = {id(owner)}, [owner]
    while found:
        part = found.pop()
        keys = part.keys() if isinstance(part, dict) else ()  # where they are texts the collector passes over them
        for each in (*gc.get_referents(part), *keys):
            if id(each) not in seen and not isinstance(each, _SHARED):
                seen.add(id(each))
                found.append(each)
                yield each


def part_of(owner: object, kind: type[T]) -> T:
    """The part of this class that `owner` itself has, whatever it calls it; there has to be just one."""
    (part,) = [each for each in vars(owner).values() if isinstance(each, kind)]
    return part


def kept_of(owner: object, kind: type[T]) -> list[T]:
    """Those of one class."""
    return [each for each in kept(owner) if isinstance(each, kind)]
