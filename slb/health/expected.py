"""What the body of an answer to a check has to say. Pure: no I/O."""

from collections.abc import Callable
from typing import Any

import orjson

from slb.model import HealthCheck

MOST_READ = 65_536
"""Bytes of a body that are looked at."""
_MOST_SHOWN = 100
"""Characters of it that a reason repeats."""

_ABSENT = object()


def body_fault(check: HealthCheck, body: bytes) -> str | None:
    """Why `body` is not what `check` asks for, with what it is instead; None where it is. Of a body that is longer
    than MOST_READ its beginning, of more than MOST_READ bytes."""
    if check.body is not None and check.body.encode() not in body:
        return f"no {_quoted(check.body)} in the answer: {_quoted(_text(body))}"
    return _json_fault(check.json, body) if check.json is not None else None


def text_found(text: str) -> Callable[[bytearray, int], bool]:
    """A function that tells whether a body has `text` in it, given the body so far and how much of it was looked
    at before; it looks at no byte twice, but for the length of the text."""
    wanted = text.encode()
    return lambda body, seen: body.find(wanted, max(0, seen - len(wanted))) >= 0


def _json_fault(condition: str, body: bytes) -> str | None:
    path, _, wanted = condition.partition("=")
    if len(body) > MOST_READ:
        return f"the answer is longer than {MOST_READ // 1024} KiB"
    try:
        found = _at(orjson.loads(body), path)
    except orjson.JSONDecodeError:
        return f"the answer is no JSON: {_quoted(_text(body))}"
    if found is _ABSENT:
        return f"no {path} in the answer: {_quoted(_text(body))}"
    written = _written(found)
    return None if written == wanted else f"{path} is {_quoted(written)}, not {_quoted(wanted)}"


def _at(value: Any, path: str) -> Any:
    """`models.0.state`: by name in objects, by number in lists."""
    for step in path.split("."):
        if isinstance(value, dict) and step in value:
            value = value[step]
        elif isinstance(value, list) and step.isascii() and step.isdigit() and int(step) < len(value):
            value = value[int(step)]
        else:
            return _ABSENT
    return value


def _written(value: Any) -> str:
    return value if isinstance(value, str) else orjson.dumps(value).decode()


def _text(body: bytes) -> str:
    return body[: 4 * _MOST_SHOWN].decode("utf-8", "backslashreplace")


def _quoted(text: str) -> str:
    """An upstream may write anything: what is not printable is escaped."""
    return repr(text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}...")
