"""The state, and what has changed in it."""

import orjson
import pytest

from slb.fleet.state import SECTIONS, State


def test_only_what_is_different_has_changed() -> None:
    state = State()
    state.put("routes", "/p", {"rate": 1.0})
    state.put("routes", "/q", {"rate": 2.0})
    assert orjson.loads(state.changes()) == {"routes": {"/p": {"rate": 1.0}, "/q": {"rate": 2.0}}}
    state.put("routes", "/p", {"rate": 1.0})
    state.put("routes", "/q", {"rate": 3.0})
    assert orjson.loads(state.changes()) == {"routes": {"/q": {"rate": 3.0}}}
    assert state.changes() == b"{}"


def test_what_has_left_is_null_once() -> None:
    state = State()
    state.put("upstreams", "a", {})
    state.changes()
    state.drop("upstreams", "a")
    state.drop("upstreams", "a")
    assert orjson.loads(state.changes()) == {"upstreams": {"a": None}}
    assert orjson.loads(state.whole()) == {each: {} for each in SECTIONS}


def test_a_section_that_is_replaced_has_nothing_else() -> None:
    state = State()
    state.replace("alerts", {"a": {"text": "x"}, "b": {"text": "y"}})
    state.changes()
    state.replace("alerts", {"b": {"text": "z"}})
    assert orjson.loads(state.changes()) == {"alerts": {"a": None, "b": {"text": "z"}}}
    assert state.objects["alerts"] == {"b": {"text": "z"}}


def test_names_of_strangers_are_quoted() -> None:
    state = State()
    state.put("jobs", '"}]\n<img>', {"at_risk": '"\u2028'})
    assert orjson.loads(state.whole())["jobs"] == {'"}]\n<img>': {"at_risk": '"\u2028'}}
    assert b"\n" not in state.changes()


def test_texts_that_are_no_utf_8_and_long_numbers_keep_nothing_from_being_shown() -> None:
    state = State()
    state.put("jobs", "a\udcff", {"at_risk": "\udcfe", "queued": 10**40, "names": frozenset("x")})
    state.put("jobs", "b", {"queued": 1})
    assert orjson.loads(state.whole())["jobs"] == {
        "a?": {"at_risk": "?", "queued": pytest.approx(1e40), "names": ["x"]},
        "b": {"queued": 1},
    }
