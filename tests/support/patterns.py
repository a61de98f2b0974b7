"""Every regular expression in slb, and with which methods it is used, read from the code itself."""

import ast
import importlib
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from tests.support.steps import METHODS

_HARMLESS = frozenset({"Pattern", "Match", "escape", "RegexFlag", "IGNORECASE", "MULTILINE", "DOTALL", "ASCII"})
"""Of `re`: what runs no pattern."""


class Found(NamedTuple):
    """`uses`: module and name of a pattern, and its methods that are called. `faults`: where the code has patterns
    that could not be found by their names."""

    uses: dict[tuple[str, str], set[str]]
    faults: list[str]


@cache
def patterns_in(root: Path) -> Found:
    """Of a package's folder. A pattern is to be a name of its module, so that it can be looked at; and its
    methods are called where it is named, so that they can be listed."""
    trees = {_module(path, root): ast.parse(path.read_text()) for path in sorted(root.rglob("*.py"))}
    nodes = {module: list(ast.walk(tree)) for module, tree in trees.items()}
    found = Found(defaultdict(set), [])
    for module, tree in trees.items():
        named = {name: _value(node) for node in tree.body for name in _assigned(node)}
        allowed = {id(value) for value in named.values()}
        found.uses.update({(module, name): set() for name, value in named.items() if _is_compile(value)})
        found.faults.extend(_unnamed(module, nodes[module], allowed))
    for module in trees:
        _note_uses(module, nodes[module], found)
    unused = [key for key, methods in found.uses.items() if not methods]
    found.faults.extend(f"{module}.{name} is never used" for module, name in unused)
    return found


def pattern_of(module: str, name: str) -> "re.Pattern[Any]":
    """The pattern itself."""
    pattern = getattr(importlib.import_module(module), name)
    assert isinstance(pattern, re.Pattern)
    return pattern


def _module(path: Path, root: Path) -> str:
    parts = path.relative_to(root.parent).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


def _assigned(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Assign):
        yield from (target.id for target in node.targets if isinstance(target, ast.Name))
    elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        yield node.target.id


def _value(node: ast.AST) -> ast.AST | None:
    return node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None


def _is_compile(node: ast.AST | None) -> bool:
    return isinstance(node, ast.Call) and _of_re(node.func) == "compile"


def _of_re(node: ast.AST) -> str | None:
    """`X` of `re.X`."""
    is_of_re = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "re"
    return node.attr if is_of_re and isinstance(node, ast.Attribute) else None


def _unnamed(module: str, nodes: list[ast.AST], allowed: set[int]) -> Iterator[str]:
    compiled = {id(node.func) for node in nodes if _is_compile(node) and id(node) in allowed}  # type: ignore[attr-defined]
    for node in nodes:
        name = _of_re(node)
        if name is not None and name not in _HARMLESS and id(node) not in compiled:
            yield f"{module}:{node.lineno}: re.{name} of no pattern that has a name in its module"  # type: ignore[attr-defined]
        if isinstance(node, ast.ImportFrom) and node.module in ("re", "regex"):
            yield f"{module}:{node.lineno}: imports from re, where its patterns are not found"
        if isinstance(node, ast.Import) and any(each.name == "re" and each.asname for each in node.names):
            yield f"{module}:{node.lineno}: re under another name"


def _note_uses(module: str, nodes: list[ast.AST], found: Found) -> None:
    here = {name: (module, name) for at, name in found.uses if at == module}
    for node in nodes:
        if isinstance(node, ast.ImportFrom):
            for each in node.names:
                if (key := (node.module or "", each.name)) in found.uses:
                    here[each.asname or each.name] = key
    calls = {id(node.value): node.attr for node in nodes if isinstance(node, ast.Attribute)}
    for node in nodes:
        if isinstance(node, ast.Name) and node.id in here and isinstance(node.ctx, ast.Load):
            method = calls.get(id(node))
            if method in METHODS:
                found.uses[here[node.id]].add(method)
            else:
                found.faults.append(f"{module}:{node.lineno}: {node.id} is passed on, and its use is unknown")
