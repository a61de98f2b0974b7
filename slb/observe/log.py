"""Logs: structured events on stderr, and the access log, one line per request. Both are JSON, or readable on a
terminal. Access lines do not go through structlog: there are thousands a second."""

import atexit
import json
import logging
import re
import select
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from random import Random
from types import MappingProxyType
from typing import Any, Literal, TextIO

import orjson
import structlog
from structlog.typing import EventDict, ExcInfo, Processor, WrappedLogger

from slb.observe.throttle import Throttle, later

MASK = "**********"  # what stands for a secret, wherever one would be shown: as pydantic has it
LogFormat = Literal["auto", "json", "console"]
Render = Callable[[dict[str, Any]], bytes]  # the fields of a request -> its line
_NOTHING: Mapping[str, str] = MappingProxyType({})

_SECRET_NAME = re.compile(r"token(?!s_per_)|password|passwd|secret|authorization|cookie|api_?key", re.IGNORECASE)
_URL_PASSWORD = re.compile(r"(://[^/?#@\s:]*+:)[^/?#\s]+@")
_BEARER = re.compile(r"(bearer\s++)[^\s,'\"]++", re.IGNORECASE)

_SHARES = {"all": 1.0, "errors": 0.0, "off": -1.0}
_FLUSH_SECONDS = 0.1
_FLUSH_BYTES = 64 * 1024


def configure_logging(
    level: str = "info",
    format: LogFormat = "auto",  # noqa: A002
    stream: TextIO | None = None,
    bound_fields: Mapping[str, str] = _NOTHING,
) -> None:
    """Write all events, the standard library's too, as lines to `stream` (stderr), with `bound_fields`."""
    out = stream or sys.stderr
    shared: list[Processor] = [
        lambda _, __, event: {**bound_fields, **event},
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.ExtraAdder(),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _mask_event,
    ]
    handler = logging.StreamHandler(out)
    renderers = _renderers(out, format)
    handler.setFormatter(structlog.stdlib.ProcessorFormatter(foreign_pre_chain=shared, processors=renderers))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.PositionalArgumentsFormatter(),
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )


def is_readable(format: LogFormat, stream: TextIO) -> bool:  # noqa: A002
    """Whether lines are for people: `console`, or `auto` on a terminal."""
    return format == "console" or (format == "auto" and stream.isatty())


def masked(text: str) -> str:
    """`text` with the password of every URL and every bearer token replaced by asterisks."""
    return _BEARER.sub(rf"\1{MASK}", _URL_PASSWORD.sub(rf"\1{MASK}@", text))


def _renderers(out: TextIO, format: LogFormat) -> list[Processor]:  # noqa: A002
    strip = structlog.stdlib.ProcessorFormatter.remove_processors_meta
    if is_readable(format, out):
        console = structlog.dev.ConsoleRenderer(colors=out.isatty(), exception_formatter=_masked_traceback)
        return [strip, _plain_event, console]
    return [strip, structlog.processors.format_exc_info, _mask_event, _json_event]


def _plain_event(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    return {name: value if name == "exc_info" else _plain(value) for name, value in event.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return " ".join(f"{name}={_plain(each)}" for name, each in value.items()) or "-"
    if isinstance(value, list | tuple):
        return ", ".join(str(_plain(each)) for each in value) or "-"
    return "-" if value is None or value == "" else value


def _masked_traceback(out: TextIO, exc_info: ExcInfo) -> None:
    # without local variables, which may hold secrets
    out.write("\n" + masked("".join(traceback.format_exception(*exc_info))))


def _json_event(_: WrappedLogger, __: str, event: EventDict) -> str:
    return _dumped(event, orjson.OPT_NON_STR_KEYS | orjson.OPT_UTC_Z).decode()


def _mask_event(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    # A traceback that is still to be formatted is no text yet; its text is masked.
    return {name: value if name == "exc_info" else _mask_value(name, value) for name, value in event.items()}


def _mask_value(name: object, value: Any) -> Any:
    if isinstance(name, str) and value and _SECRET_NAME.search(name):
        return MASK
    if isinstance(value, str):
        return masked(value)
    if isinstance(value, Mapping):
        return {key: _mask_value(key, each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_mask_value("", each) for each in value]
    return value


_SECONDS_DECIMALS = 6  # what lies behind is not time but how floats are kept


class AccessLog:
    """One line per logged request; `mode` is all, errors, off, or a share (errors are always logged). `write` only
    appends; lines go to the sink together every 100 ms, at 64 KiB and at exit. A sink that fails loses lines
    (`lost` counts them). `refused` bounds the lines of requests that were refused before they reached an
    upstream."""

    def __init__(
        self,
        mode: str,
        rng: Random,
        write: Callable[[bytes], None],
        render: Render | None = None,
        refused: Throttle | None = None,
    ) -> None:
        self.lost = 0
        self.refused = refused or Throttle()
        self.set_mode(mode)
        self._rng = rng
        self._sink = write
        self._render = render or json_lines()
        self._lines: list[bytes] = []
        self._size = 0
        atexit.register(self.flush)

    def set_mode(self, mode: str) -> None:
        self._share = _SHARES[mode] if mode in _SHARES else float(mode)

    def wants(self, status: int, reason: str, reached: bool = True) -> bool:
        """Whether to log this request: an error (5xx or a reason), or one of the configured share; where it did not
        reach an upstream, whether `refused` allows it."""
        share = self._share
        if not reached:
            return share >= 0 and self.refused.allows()
        if share >= 1:
            return True
        if status >= 500 or reason:
            return share >= 0
        return share > 0 and self._rng.random() < share

    def write(self, reached: bool = True, **fields: Any) -> None:
        """Append one line. Floats are seconds, written to the microsecond; bytes are not taken."""
        for name, value in fields.items():
            if isinstance(value, float):
                fields[name] = round(value, _SECONDS_DECIMALS)
        line = self._render(fields)
        if not reached:
            self.refused.spend(len(line))
        if not self._lines:
            later(_FLUSH_SECONDS, self.flush)
        self._lines.append(line)
        self._size += len(line)
        if self._size >= _FLUSH_BYTES:
            self.flush()

    def flush(self) -> None:
        lines, self._lines, self._size = self._lines, [], 0
        if not lines:
            return
        try:
            self._sink(b"".join(lines))
        except (OSError, ValueError):  # a full disk, a reader that has gone, a stream closed at exit
            self.lost += len(lines)

    def close(self) -> None:
        self.refused.report()
        self.flush()
        atexit.unregister(self.flush)


def json_lines(bound_fields: Mapping[str, str] = _NOTHING) -> Render:
    """Makes lines of JSON: the time, the fields, and `bound_fields`, which is rendered once."""
    end = b"," * bool(bound_fields) + orjson.dumps(dict(bound_fields))[1:] + b"\n"

    def line(fields: dict[str, Any]) -> bytes:
        whole = _dumped({"timestamp": datetime.now(UTC), "event": "request", **fields}, orjson.OPT_UTC_Z)
        return whole[:-1] + end

    return line


def _dumped(fields: Mapping[str, Any], option: int) -> bytes:
    try:
        return orjson.dumps(fields, default=repr, option=option)
    except orjson.JSONEncodeError:  # a text that is not Unicode: the slower library escapes it
        return json.dumps(dict(fields), default=str).encode()


def console_lines(bound_fields: Mapping[str, str] = _NOTHING) -> Render:
    """Makes lines such as `2026-11-01T12:00:01.250000Z GET /p1/x 200 upstream=10.0.0.1:80`, with `-` for an
    unknown main field, and `bound_fields` at the end."""
    end = "".join(f" {name}={value}" for name, value in bound_fields.items()).encode() + b"\n"

    def line(fields: dict[str, Any]) -> bytes:
        rest = dict(fields)
        pieces = [datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")]
        pieces += [str(rest.pop(name, "") or "-") for name in ("method", "path", "status")]
        pieces += [f"{name}={_shown(value)}" for name, value in rest.items() if value not in (None, "")]
        return _ONE_LINE.sub(_escaped, " ".join(pieces)).encode("utf-8", "backslashreplace") + end

    return line


_ONE_LINE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")  # nothing a client sends may begin a line


def _escaped(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode()


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    return "; ".join(value) if isinstance(value, tuple) else str(value)


def stderr_sink(stream: TextIO | None = None) -> Callable[[bytes], None]:
    """Writes whole lines to stderr, in pieces that a pipe does not tear: several workers share it."""
    out = (stream or sys.stderr).buffer

    def write(data: bytes) -> None:
        for piece in _line_pieces(data):
            out.write(piece)
            out.flush()

    return write


def _line_pieces(data: bytes) -> Iterable[bytes]:
    start = 0
    while len(data) - start > select.PIPE_BUF:
        end = data.rfind(b"\n", start, start + select.PIPE_BUF) + 1 or data.find(b"\n", start) + 1 or len(data)
        yield data[start:end]
        start = end
    if start < len(data):
        yield data[start:]
