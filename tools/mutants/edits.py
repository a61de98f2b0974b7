"""The small changes that can be made to a source text, each of which some test should notice. Pure.

What is left alone: annotations, decorators, imports, texts, and numbers with a fraction outside functions, which
are seconds: tests do not assert how long something takes.
"""

import ast
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import unified_diff
from hashlib import sha256
from itertools import chain, zip_longest

_COMPARED: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
}
_COMPUTED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}
_PLAIN = (ast.Compare, ast.UnaryOp, ast.Constant)
"""Conditions that are negated by another change."""
_CALLED = {"min": "max", "max": "min", "any": "all", "all": "any"}
_FIXED_ORDER = frozenset({"isinstance", "issubclass", "cast", "getattr", "setattr", "hasattr", "zip"})
_LEFT_ALONE = frozenset({"annotation", "returns", "decorator_list", "bases"})


@dataclass(frozen=True)
class Mutant:
    """One change of the file at `path`: `text` in the place of the bytes from `start` to `end`."""

    path: str
    line: int
    kind: str
    start: int
    end: int
    text: str

    def applied(self, source: bytes) -> bytes:
        """The file with this change."""
        return source[: self.start] + self.text.encode() + source[self.end :]

    def lines(self, source: bytes) -> tuple[str, str]:
        """The first line that differs, before and after, without what surrounds it: names a mutant for people."""
        first = source.rfind(b"\n", 0, self.start) + 1
        last = (source + b"\n").find(b"\n", self.end)
        parts = source[first:last], source[first : self.start] + self.text.encode() + source[self.end : last]
        before, after = (part.decode().split("\n") for part in parts)
        pairs = zip_longest(before, after, fillvalue="")
        return next((one.strip(), other.strip()) for one, other in pairs if one != other)

    def diff(self, source: bytes) -> str:
        """As `diff -u` shows it, with one line around it."""
        before, after = source.decode().split("\n"), self.applied(source).decode().split("\n")
        return "\n".join(list(unified_diff(before, after, n=1, lineterm=""))[3:])

    def rank(self, seed: int, source: bytes) -> bytes:
        """Its place in the order of `seed`, which changes elsewhere do not move."""
        return sha256(repr((seed, self.path, self.kind, self.lines(source))).encode()).digest()


def mutants(path: str, source: bytes) -> Iterator[Mutant]:
    """All changes that can be made to a file."""
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    for node, function in _nodes(ast.parse(source), ""):
        for kind, place, text in chain(_of_expression(node, function), _of_statement(node, function)):
            start, end = starts[place.lineno - 1] + place.col_offset, _end(place, starts)
            found = Mutant(path, place.lineno, kind, start, end, text)
            if found.applied(source) != source:
                yield found


def _end(node: ast.expr | ast.stmt, starts: Sequence[int]) -> int:
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    return starts[node.end_lineno - 1] + node.end_col_offset


def _nodes(node: ast.AST, function: str) -> Iterator[tuple[ast.AST, str]]:
    """Each node below that may be changed, and the name of the function it stands in."""
    yield node, function
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        function = node.name
    for name, value in ast.iter_fields(node):
        if name not in _LEFT_ALONE:
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST) and not _is_left_alone(child):
                    yield from _nodes(child, function)


def _is_left_alone(node: ast.AST) -> bool:
    if isinstance(node, ast.If):
        return ast.unparse(node.test) == "TYPE_CHECKING"
    return isinstance(node, ast.JoinedStr | ast.Import | ast.ImportFrom)


_Found = Iterable[tuple[str, ast.expr | ast.stmt, str]]
"""What kind of change, of which node, and what stands there then."""


def _of_expression(node: ast.AST, function: str) -> _Found:
    match node:
        case ast.Compare():
            for index, operator in enumerate(node.ops):
                for other in _COMPARED[type(operator)]:
                    ops = [*node.ops[:index], other(), *node.ops[index + 1 :]]
                    yield "comparison", node, _text(ast.Compare(node.left, ops, node.comparators))
        case ast.BoolOp():
            other_op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
            yield "and/or", node, _text(ast.BoolOp(other_op, node.values))
            for index in range(len(node.values)):
                left = [*node.values[:index], *node.values[index + 1 :]]
                yield "condition dropped", node, _text(ast.BoolOp(node.op, left) if len(left) > 1 else left[0])
        case ast.UnaryOp(op=ast.Not()):
            yield "negation", node, _text(node.operand)
        case ast.IfExp() | ast.If() | ast.While() if not isinstance(node.test, _PLAIN):
            yield "negation", node.test, _text(ast.UnaryOp(ast.Not(), node.test))
        case ast.Constant(value=bool() as value):
            yield "constant", node, str(not value)
        case ast.Constant(value=int() as value):
            yield "constant", node, str(value + 1)
        case ast.Constant(value=float() as value) if function:
            yield "constant", node, str(value + 1)
        case ast.BinOp() if type(node.op) in _COMPUTED and not any(map(_is_text, (node.left, node.right))):
            yield "arithmetic", node, _text(ast.BinOp(node.left, _COMPUTED[type(node.op)](), node.right))
        case ast.Call():
            yield from _of_call(node)


def _of_call(node: ast.Call) -> _Found:
    name, given = ast.unparse(node.func), node.args
    if name in _CALLED:
        yield "arithmetic", node.func, _CALLED[name]
    elif len(given) > 1 and name not in _FIXED_ORDER and not any(isinstance(each, ast.Starred) for each in given):
        turned = [given[1], given[0], *given[2:]]
        yield "argument order", node, ast.unparse(ast.Call(node.func, turned, node.keywords))


def _of_statement(node: ast.AST, function: str) -> _Found:
    match node:
        case ast.Expr(value=ast.Call() | ast.Await()) if "__init__" not in ast.unparse(node):
            yield "statement dropped", node, "pass"
        case ast.Assign() if function not in ("__init__", "") and all(map(_is_kept, node.targets)):
            yield "statement dropped", node, "pass"
        case ast.AugAssign() | ast.Delete() | ast.Raise() | ast.Continue() | ast.Break():
            yield "statement dropped", node, "pass"
        case ast.Return(value=ast.expr() as value) if not isinstance(value, ast.Constant):
            yield "nothing returned", node, "return None"


def _text(node: ast.expr) -> str:
    return f"({ast.unparse(node)})"


def _is_text(node: ast.expr) -> bool:
    is_constant = isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)
    return is_constant or isinstance(node, ast.JoinedStr)


def _is_kept(target: ast.expr) -> bool:
    return isinstance(target, ast.Attribute | ast.Subscript)
