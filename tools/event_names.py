"""The events that slb's code writes into its log: what each is called, how loud it is, and what it has besides."""

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

_LEVELS = ("debug", "info", "warning", "error", "critical")
_TRACED = "exception"
"""A level, an error with a traceback, and the field that has it."""
_LOGGERS = frozenset({"_log", "frequent"})


def logged(sources: Iterable[Path]) -> Mapping[str, tuple[str, list[str]]]:
    """By event: its levels, and its fields in their order. `*` stands for what is only known when it is logged; a
    field `...` for more of them."""
    found: dict[str, tuple[set[str], dict[str, None]]] = {}
    trees = [ast.parse(file.read_text()) for file in sources]
    of_classes = [names for tree in trees for names in _of_classes(tree)]
    for tree in trees:
        for call in _calls(tree):
            assert isinstance(call.func, ast.Attribute)
            for event in _events(call.args[0], of_classes):
                levels, fields = found.setdefault(event, (set(), {}))
                fields.update(dict.fromkeys(_field(each) for each in call.keywords))
                levels.add("error" if call.func.attr == _TRACED else call.func.attr)
                if call.func.attr == _TRACED:
                    fields[_TRACED] = None
    return {
        event: (", ".join(each for each in _LEVELS if each in levels), sorted(fields, key="...".__eq__))
        for event, (levels, fields) in sorted(found.items())
    }


def _calls(tree: ast.AST) -> Iterator[ast.Call]:
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id=logger), attr=level), args=[_, *_]):
                if logger in _LOGGERS and level in (*_LEVELS, _TRACED):
                    yield node


def _of_classes(tree: ast.AST) -> Iterator[list[str]]:
    """The names that a class gives those that its base logs: `events`, a tuple of texts."""
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=[ast.Name(id="events")], value=ast.Tuple(elts=[ast.Constant(), *_] as names)):
                yield [str(ast.literal_eval(each)) for each in names]


def _events(given: ast.expr, of_classes: Sequence[Sequence[str]]) -> Iterator[str]:
    match given:
        case ast.Subscript(value=ast.Attribute(attr="events"), slice=ast.Constant(value=int(at))):
            yield from (names[at] for names in of_classes)
        case ast.Constant(value=str(name)) if name.isidentifier():  # else a sentence, of the client library
            yield name
        case ast.IfExp(body=one, orelse=other):
            yield from (*_events(one, of_classes), *_events(other, of_classes))
        case ast.JoinedStr(values=parts):
            yield "".join(str(each.value) if isinstance(each, ast.Constant) else "*" for each in parts)


def _field(given: ast.keyword) -> str:
    return "..." if given.arg is None else _TRACED if given.arg == "exc_info" else given.arg
