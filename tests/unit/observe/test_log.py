"""Events and access lines: their form, what is kept, and what is never shown."""

import asyncio
import io
import json
import logging
import random
import re
from typing import Any

import pytest
import structlog

from slb.observe.log import (
    MASK,
    AccessLog,
    LogFormat,
    configure_logging,
    console_lines,
    is_readable,
    json_lines,
    stderr_sink,
)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def configured(level: str = "info", form: LogFormat = "json") -> io.StringIO:
    out = io.StringIO()
    configure_logging(level, form, out)
    return out


def lines(out: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.getvalue().splitlines()]


def test_an_event_is_one_line_of_json_with_time_and_level() -> None:
    out = configured()
    structlog.get_logger().info("redis_up", redis="redis://h:6379/0", tries=3)
    (line,) = lines(out)
    assert line.pop("timestamp").endswith("Z")
    assert line == {"event": "redis_up", "level": "info", "redis": "redis://h:6379/0", "tries": 3}


@pytest.mark.parametrize("form", ["json", "console"])
def test_every_line_names_its_instance_once_that_is_known(form: LogFormat) -> None:
    out, names = configured(form=form), {"instance": "box@127.0.0.2:8080", "worker": "1"}
    structlog.get_logger().info("before")
    configure_logging("info", form, out, names)
    structlog.get_logger().info("redis_up")
    logging.getLogger("asyncio").warning("slow")
    render = json_lines(names) if form == "json" else console_lines(names)
    before, *after = [*out.getvalue().splitlines(), render({"path": "/p"}).decode(), render({}).decode()]
    assert "box" not in before
    assert len(after) == 4
    for line in after:
        found = json.loads(line) if form == "json" else dict(re.findall(r"(instance|worker)=(\S+)", line))
        assert {name: found[name] for name in names} == names


def test_events_of_the_standard_librarys_loggers_take_the_same_form() -> None:
    out = configured()
    logging.getLogger("asyncio").warning("took %s", "long")
    (line,) = lines(out)
    assert (line["event"], line["level"]) == ("took long", "warning")


def test_on_a_terminal_lists_tables_and_what_is_not_set_are_plain_text() -> None:
    out = configured(form="console")
    structlog.get_logger().info("changed", names=["a", "b"], changes={"weight": 2, "zone": None}, drain=None)
    shown = out.getvalue().partition("changed")[2].split()
    assert " ".join(shown) == "changes='weight=2 zone=-' drain=- names='a, b'"


def test_limits_in_tokens_a_minute_are_no_secret() -> None:
    out = configured()
    structlog.get_logger().info("quota_model_set", max_tokens_per_minute=10, tokens="hush", api_tokens="hush")
    (line,) = lines(out)
    assert (line["max_tokens_per_minute"], line["tokens"], line["api_tokens"]) == (10, MASK, MASK)


def test_events_below_the_level_are_not_written() -> None:
    out = configured("warning")
    structlog.get_logger().info("quiet")
    logging.getLogger("other").info("quiet")
    structlog.get_logger().warning("loud")
    assert [line["event"] for line in lines(out)] == ["loud"]


@pytest.mark.parametrize("form", ["json", "console"])
def test_secrets_never_reach_a_line(form: LogFormat) -> None:
    out = configured(form=form)
    log = structlog.get_logger()
    log.info(
        "a", redis_url="redis://user:hush@h/0", api_token="hush", nested={"password": "hush", "list": ["://:hush@"]}
    )
    logging.getLogger("redis").error("cannot reach redis://:hush@h/0, Authorization: Bearer hush")
    try:
        local_secret = "hush"
        raise ValueError(f"redis://:{local_secret}@h")
    except ValueError:
        log.exception("broken at rediss://u:hush@h")
    assert "hush" not in out.getvalue().replace('local_secret = "hush"', "")
    assert MASK in out.getvalue()


def test_an_exception_is_logged_with_its_traceback_in_the_same_line() -> None:
    out = configured()
    try:
        raise ValueError("odd")
    except ValueError:
        structlog.get_logger().exception("broken")
    (line,) = lines(out)
    assert "ValueError: odd" in line["exception"]


def test_an_error_logged_by_the_standard_library_has_its_traceback_too_without_secrets() -> None:
    out = configured()
    error = ValueError("odd at redis://u:hush@h")
    logging.getLogger("slb").critical("a task ended", exc_info=error)
    (line,) = lines(out)
    assert "ValueError: odd" in line["exception"]
    assert "hush" not in out.getvalue()


def test_lines_are_readable_on_a_terminal_and_json_elsewhere_unless_set() -> None:
    assert is_readable("auto", Terminal())
    assert not is_readable("auto", io.StringIO())
    assert is_readable("console", io.StringIO())
    assert not is_readable("json", Terminal())


class Sink:
    def __init__(self) -> None:
        self.data = b""
        self.calls = 0
        self.called = asyncio.Event()

    def __call__(self, data: bytes) -> None:
        self.data += data
        self.calls += 1
        self.called.set()


@pytest.mark.parametrize(
    ("mode", "ok", "error", "refused"),
    [
        ("all", True, True, True),
        ("errors", False, True, True),
        ("off", False, False, False),
        ("0", False, True, True),
        ("1.0", True, True, True),
    ],
)
def test_what_is_wanted_in_each_mode(mode: str, ok: bool, error: bool, refused: bool) -> None:
    log = AccessLog(mode, random.Random(1), Sink())
    assert log.wants(200, "") is ok
    assert log.wants(500, "") is error
    assert log.wants(404, "no_route") is refused
    log.close()


def test_a_share_draws_that_share_of_the_requests() -> None:
    log = AccessLog("0.25", random.Random(7), Sink())
    drawn = sum(log.wants(200, "") for _ in range(4000))
    assert 900 < drawn < 1100  # 1000 expected, standard deviation 27
    log.close()


async def test_lines_leave_together_a_moment_later() -> None:
    sink = Sink()
    log = AccessLog("all", random.Random(1), sink)
    log.write(method="GET", path="/p1", status=200, upstream="10.0.0.1:80", duration=0.2500004999)
    log.write(method="GET", path="/p2", status=404, reason="no_route")
    assert sink.calls == 0
    await sink.called.wait()
    first, second = map(json.loads, sink.data.splitlines())
    assert sink.calls == 1
    assert first.pop("timestamp").endswith("Z")
    assert first == {
        "event": "request",
        "method": "GET",
        "path": "/p1",
        "status": 200,
        "upstream": "10.0.0.1:80",
        "duration": 0.25,
    }
    assert second["reason"] == "no_route"
    log.close()


async def test_a_full_buffer_does_not_wait() -> None:
    sink = Sink()
    log = AccessLog("all", random.Random(1), sink)
    for _ in range(20):
        log.write(path="/" + "x" * 4096)
    assert sink.calls == 1
    log.close()
    assert len(sink.data.splitlines()) == 20


def test_lines_written_where_no_loop_runs_wait_for_a_flush() -> None:
    sink = Sink()
    log = AccessLog("all", random.Random(1), sink)
    log.write(path="/p1")
    log.close()
    assert json.loads(sink.data)["path"] == "/p1"


def test_a_sink_that_fails_loses_lines_and_raises_nothing() -> None:
    def broken(_: bytes) -> None:
        raise BrokenPipeError

    log = AccessLog("all", random.Random(1), broken)
    log.write(path="/p1")
    log.write(path="/p2")
    log.close()
    assert log.lost == 2


def test_the_readable_line_shows_the_main_fields_first_and_leaves_out_what_is_empty() -> None:
    line = console_lines()({"method": "GET", "path": "/p1", "status": 200, "reason": "", "duration": 0.0031234567})
    assert line.decode().partition(" ")[2] == "GET /p1 200 duration=0.00312346\n"


def test_the_readable_line_has_its_time_in_the_form_of_all_other_lines() -> None:
    time, _, _ = console_lines()({}).decode().partition(" ")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", time)


def test_what_is_not_known_of_a_refused_request_is_a_dash_and_attempts_that_failed_are_a_list() -> None:
    line = console_lines()({"method": "", "path": "", "status": 400, "failed": ("a: refused", "b: reset")})
    assert line.decode().partition(" ")[2] == "- - 400 failed=a: refused; b: reset\n"


@pytest.mark.parametrize("render", [json_lines(), console_lines()])
def test_nothing_a_client_sends_starts_a_line_or_speaks_to_the_terminal(render: Any) -> None:
    line = render({"method": "GET", "path": "/\r\nGET /forged\x1b[2J\u2028\x9b", "status": 200})
    text = line.decode()
    assert text.count("\n") == 1
    assert text.endswith("\n")
    assert not any(ord(char) < 32 for char in text[:-1])


def test_what_is_no_valid_text_is_written_all_the_same() -> None:
    assert b"/caf" in console_lines()({"path": "/caf\udce9"})
    assert b"/caf" in json_lines()({"path": "/caf\udce9"})


def test_a_pipe_gets_whole_lines_in_pieces_it_takes_at_once() -> None:
    class Raw(io.BytesIO):
        def __init__(self) -> None:
            super().__init__()
            self.pieces: list[bytes] = []

        def write(self, data: Any) -> int:
            self.pieces.append(bytes(data))
            return len(data)

    raw = Raw()
    stream = io.TextIOWrapper(raw)
    written = [b"x" * size + b"\n" for size in (1000, 3000, 200, 9000, 50, 4096)]
    stderr_sink(stream)(b"".join(written))
    assert b"".join(raw.pieces) == b"".join(written)
    assert all(piece.endswith(b"\n") for piece in raw.pieces)
    assert all(len(piece) <= 4096 or piece.count(b"\n") == 1 for piece in raw.pieces)
