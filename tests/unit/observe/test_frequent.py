"""Frequent events are lines of the log like any other."""

import logging
from collections.abc import Iterator
from io import StringIO
from random import Random

import orjson
import pytest

from slb.observe import frequent
from slb.observe.log import AccessLog, configure_logging, json_lines
from tests.support.logs import logging_as_before

BOUND = {"instance": "here"}


@pytest.fixture
def stream() -> Iterator[StringIO]:
    """The log, in JSON."""
    with logging_as_before():
        configure_logging("info", "json", stream := StringIO(), BOUND)
        yield stream
        frequent.write_to(None)


def test_a_frequent_event_has_the_fields_of_any_other_and_no_secrets(stream: StringIO) -> None:
    written: list[bytes] = []
    frequent.info("job_attempt", job="one", error="no http://me:secret@there")
    lines = AccessLog("all", Random(1), written.append, json_lines(BOUND))
    frequent.write_to(lines)
    frequent.info("job_attempt", job="one", error="no http://me:secret@there")
    assert not written, "it waits for more"
    lines.flush()
    usual, fast = orjson.loads(stream.getvalue()), orjson.loads(b"".join(written))
    assert usual.pop("timestamp")[:10] == fast.pop("timestamp")[:10]
    assert usual == fast
    assert "secret" not in fast["error"]


def test_the_level_holds_for_it(stream: StringIO) -> None:
    written: list[bytes] = []
    lines = AccessLog("all", Random(1), written.append, json_lines(BOUND))
    frequent.write_to(lines)
    logging.getLogger().setLevel("WARNING")
    frequent.info("job_attempt", job="one")
    lines.flush()
    assert not written
