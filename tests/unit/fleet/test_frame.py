"""Frames as they are written, and what is believed of others'."""

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slb.fleet.asks import Ask, read_ask
from slb.fleet.frame import (
    INSTANCE,
    JOBS,
    MOST_UPSTREAMS,
    NO_ROUTE_ROW,
    NO_UPSTREAM_ROW,
    QUOTA,
    Frame,
    PoolRow,
    QueueRow,
    read,
    written,
)

FRAME = Frame(
    "id-1",
    7,
    True,
    {**INSTANCE, "name": "one", "rate": 2.5, "roles": ["proxy"]},
    {"10.0.0.1:80": (3, "it refuses connections", 2, 1, 0.5, 0.0, 0.25)},
    {"/p": (True, 2.0, 1.0, (0.5, 1.5), {"queue_full": 1.0})},
    [PoolRow("/p", "shared", "", 2, 0, 3)],
    [QueueRow("/p", "/p", "high", 4, 1.5)],
    {"flux": {**JOBS, "dead": 2, "failed_by": {"out of memory": 2}}},
    {"gpt": {**QUOTA, "waiting": 1, "next": [{"key": "order-17", "tokens": 10, "due": 4.5}]}},
    {"/r": {"shares": [("10.0.0.1:80", 1.0)]}},
    {"10.0.0.1:80": 1_700_000_000.5},
    busy=["10.0.0.2:80"],
    stuck=["10.0.0.1:80"],
    empty_since={"/q": 1_700_000_000.5},
    faults_since={"/p": 1_700_000_001.5},
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)


def changed(**parts: Any) -> str:
    return orjson.dumps({**orjson.loads(written(FRAME)), **parts}).decode()


def test_a_frame_is_read_as_it_was_written() -> None:
    found = read(written(FRAME).decode())
    assert found is not None
    assert orjson.loads(written(found)) == orjson.loads(written(FRAME))
    assert found.pools[0].held == 3
    assert found.queues[0].priority == "high"


@pytest.mark.parametrize(
    "parts",
    [
        {"v": 2},
        {"id": "x" * 65},
        {"number": -2},
        {"full": 1},
        {"instance": []},
        {"instance": {"name": ["one"]}},
        {"instance": {"name": "one", "rate": "fast"}},
        {"quota": {"gpt": {"next": [["order-17", 10, 4.5]]}}},
        {"quota": {"gpt": {"next": [{"tokens": "many"}]}}},
        {"quota": {"gpt": {"next": [{}] * 101}}},
        {"upstreams": {"m": [9, "", 0, 0, 0, 0, 0]}},
        {"upstreams": {"m": [0, "", -5, 0, 0, 0, 0]}},
        {"upstreams": {"m": [0, "", 0, 0, 1e300, 0, 0]}},
        {"upstreams": {"m": [0, "x" * 301, 0, 0, 0, 0, 0]}},
        {"upstreams": {"m": [0, "", 0, 0, 0, 0]}},
        {"upstreams": {str(number): [0, "", 0, 0, 0, 0, 0] for number in range(MOST_UPSTREAMS + 1)}},
        {"upstreams": {"m" * 2049: [0, "", 0, 0, 0, 0, 0]}},
        {"routes": {"/p": [True, 0, 0, [0] * 65, {}]}},
        {"pools": [["/p", "shared", "", 0, 0, "many"]]},
        {"jobs": {"flux": {"dead": "two"}}},
        {"rings": {"/r": {"shares": [["m"]]}}},
        {"since": {"m": "yesterday"}},
        {"since": {"m": -1}},
    ],
)
def test_what_is_not_of_its_form_is_passed_over(parts: dict[str, Any]) -> None:
    assert read(changed(**parts)) is None


def test_fields_of_another_version_are_left_out_and_those_that_are_missing_are_none() -> None:
    found = read(changed(instance={"name": "one", "of_tomorrow": 1}, of_tomorrow={}))
    assert found is not None
    assert found.instance == {**INSTANCE, "name": "one"}


@pytest.mark.parametrize("section", ["since", "stuck", "empty_since", "faults_since"])
def test_a_frame_of_a_version_that_does_not_tell_of_something_is_read(section: str) -> None:
    parts = orjson.loads(written(FRAME))
    del parts[section]
    found = read(orjson.dumps(parts).decode())
    assert found is not None
    assert (list(getattr(found, section)), found.upstreams) == ([], FRAME.upstreams)


def test_the_rows_have_the_length_that_earlier_versions_read() -> None:
    assert [len(each) for each in (NO_UPSTREAM_ROW, NO_ROUTE_ROW, PoolRow._fields, QueueRow._fields)] == [
        7,
        5,
        6,
        5,
    ]


@given(JSON, st.sampled_from(["v", *Frame._fields]))
def test_no_text_breaks_the_reading(value: Any, name: str) -> None:
    try:
        text = changed(**{name: value})
    except (TypeError, ValueError):  # no JSON
        return
    read(text)
    read_ask(text)


@given(st.text())
def test_no_json_is_no_frame_and_no_ask(text: str) -> None:
    assert read(text) is None
    assert read_ask(text) is None


def test_an_ask_is_read_as_it_was_written_within_its_bounds() -> None:
    ask = Ask("id-1", 2.0, True, False, "abc")
    assert read_ask(ask.written().decode()) == ask
    assert read_ask(Ask("id-1", 1e9).written().decode()) == Ask("id-1", 60.0)
    assert read_ask(Ask("id-1", explain="x" * 201).written().decode()) is None
    several = Ask("id-1", 2.0, failures_of=("/p", "10.0.0.1:80"))
    assert read_ask(several.written().decode()) == several
    assert several.is_question
    assert read_ask(Ask("id-1", failures_of=("/p",) * 33).written().decode()) is None
