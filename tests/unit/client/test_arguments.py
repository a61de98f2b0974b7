"""Bad arguments are refused by name, before anything is opened."""

import inspect
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession

from slb.client import Session, shed_when_full
from slb.client.arguments import checked_fallback
from slb.client.options import HttpOptions
from slb.errors import ConfigError

ONE = ["10.0.0.1:80"]
FALLBACK = "http://slb:8080"
REDIS = "redis://127.0.0.1:1/0"


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        ({}, "redis_url or upstreams"),
        ({"upstreams": ONE, "redis_url": "redis://h"}, "redis_url or upstreams"),
        ({"upstreams": []}, "upstreams is empty"),
        ({"upstreams": {}}, "upstreams is empty"),
        ({"upstreams": "10.0.0.1:80"}, "give a list"),
        ({"upstreams": [*ONE, *ONE]}, "10.0.0.1:80 stands there twice"),
        ({"upstreams": ["H:80", "http://h"]}, "h:80 stands there twice"),
        ({"upstreams": ["ftp://h"]}, "upstreams: target 'ftp://h'"),
        ({"upstreams": {"h:80": {"weight": 0}}}, "upstreams: h:80: weight = 0"),
        ({"upstreams": {"h:80": {"colour": "red"}}}, "upstreams: h:80: colour"),
        ({"upstreams": ONE, "settings": {"policy": "best"}}, "settings: policy = 'best'"),
        (
            {"upstreams": ONE, "settings": {"health_body": "ok"}},
            "settings: health_body = 'ok': without a health_path nothing is checked",
        ),
        ({"upstreams": ONE, "settings": {"colour": "red"}}, "settings: colour"),
        ({"upstreams": ONE, "settings": {"polcy": "p2c"}}, "setting of this name; is policy meant?"),
        ({"upstreams": ONE, "settings": {"balance_factor": 0.9}}, "settings: balance_factor"),
        ({"upstreams": ONE, "settings": {"client_percentage": 130}}, "settings: client_percentage"),
        ({"upstreams": ONE, "settings": {"max_inflight": 1}}, "max_inflight"),
        ({"upstreams": ONE, "percentage": 130, "fallback": FALLBACK}, "percentage = 130"),
        ({"upstreams": ONE, "percentage": -1, "fallback": FALLBACK}, "percentage = -1"),
        ({"upstreams": ONE, "percentage": float("nan"), "fallback": FALLBACK}, "percentage = nan"),
        ({"upstreams": ONE, "percentage": 99}, "percentage = 99: set fallback"),
        ({"upstreams": ONE, "enabled": False}, "enabled = False: set fallback"),
        ({"upstreams": ONE, "fallback": "slb:8080"}, "fallback = "),
        ({"upstreams": ONE, "fallback": ""}, "fallback = "),
        ({"upstreams": ONE, "fallback": "http://slb/?x"}, "fallback = "),
        ({"upstreams": ONE, "fallback": "http://[slb"}, "fallback = "),
        ({"upstreams": ONE, "max_outbound": -1}, "max_outbound = -1"),
        ({"upstreams": ONE, "max_outbound": 1.5}, "max_outbound = 1.5"),
        ({"upstreams": ONE, "max_outbound": 10, "buffer_from": 11}, "buffer_from = 11"),
        ({"upstreams": ONE, "buffer_from": 0}, "buffer_from = 0"),
        ({"upstreams": ONE, "buffer_timeout": 0}, "buffer_timeout = 0"),
        ({"upstreams": ONE, "upstream_networks": ["10.0.0.1/8"]}, "upstream_networks: "),
        ({"upstreams": ["0.0.0.0:1"]}, "upstreams: 0.0.0.0:1: 0.0.0.0 is unspecified"),
        ({"upstreams": {"http://[fe80::1]": {}}}, "upstreams: [fe80::1]:80: fe80::1 is link-local"),
        ({"upstreams": ["169.254.1.1:80"]}, "169.254.1.1 is link-local, which is never an upstream"),
        ({"upstreams": ONE, "upstream_networks": ["10.9.0.0/16"]}, "10.0.0.1 is in none of upstream_networks"),
        ({"upstreams": ONE, "data_dir": "/x"}, "data_dir: "),
    ],
)
def test_a_bad_argument_is_refused_by_name(arguments: dict[str, Any], fault: str) -> None:
    with pytest.raises(ConfigError) as raised:
        Session(**arguments)
    assert fault in str(raised.value)


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        ({"redis_url": 5}, "redis_url = 5"),
        ({"upstreams": 5}, "upstreams = 5: give a list"),
        ({"upstreams": [5]}, "upstreams: 5: "),
        ({"upstreams": {"h:80": "a"}}, "upstreams: h:80: 'a'"),
        ({"upstreams": ONE, "settings": [1]}, "settings = [1]"),
        ({"upstreams": ONE, "settings": "x"}, "settings = 'x'"),
        ({"upstreams": ONE, "settings": []}, "settings = []"),
        ({"upstreams": ONE, "fallback": 5}, "fallback = 5"),
        ({"upstreams": ONE, "max_outbound": 10, "buffer_from": "x"}, "buffer_from = 'x'"),
        ({"upstreams": ONE, "max_outbound": 10, "buffer_from": 1.5}, "buffer_from = 1.5"),
        ({"upstreams": ONE, "buffer_timeout": "x"}, "buffer_timeout = 'x'"),
        ({"upstreams": ONE, "buffer_timeout": True}, "buffer_timeout = True"),
        ({"upstreams": ONE, "buffer_timeout": float("nan")}, "buffer_timeout = nan"),
        ({"upstreams": ONE, "max_connection_age": 0}, "max_connection_age = 0"),
        ({"upstreams": ONE, "node": 5}, "node = 5"),
        ({"upstreams": ONE, "zone": 5}, "zone = 5"),
        ({"upstreams": ONE, "zone": None}, "zone = None"),
        ({"upstreams": ONE, "upstream_networks": 5}, "upstream_networks = 5: give a list"),
        ({"upstreams": ONE, "upstream_networks": "10.0.0.0/8"}, "upstream_networks = '10.0.0.0/8': give a list"),
        ({"redis_url": REDIS, "data_dir": 5}, "data_dir = 5"),
        ({"redis_url": REDIS, "data_dir": b"/x"}, "data_dir = b'/x'"),
        ({"redis_url": REDIS, "data_dir": ""}, "data_dir = ''"),
        ({"upstreams": ONE, "timeout": 5}, "timeout = 5"),
        ({"upstreams": ONE, "metrics": 5}, "metrics = 5"),
        ({"upstreams": ONE, "rng": 5}, "rng = 5"),
    ],
)
def test_an_argument_of_another_kind_is_refused_by_name(arguments: dict[str, Any], fault: str) -> None:
    with pytest.raises(ConfigError) as raised:
        Session(**arguments)
    assert fault in str(raised.value)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("upstream_network", "'upstream_network'; is upstream_networks meant?"),
        ("percentige", "'percentige'; is percentage meant?"),
        ("header", "'header'; is headers meant?"),
        ("base_url", "'base_url'"),
    ],
)
def test_an_argument_that_there_is_not_is_a_type_error(name: str, said: str) -> None:
    with pytest.raises(TypeError) as raised:
        Session(upstreams=ONE, **{name: None})  # type: ignore[arg-type]
    assert str(raised.value) == f"Session has no argument {said}"


def test_what_is_handed_on_to_aiohttp_are_its_arguments() -> None:
    own, theirs = (inspect.signature(each).parameters.keys() for each in (Session, ClientSession))
    known = theirs - own
    left_out = {"base_url", "loop", "read_timeout", "conn_timeout", "ssl_shutdown_timeout"}
    assert known - left_out == HttpOptions.__annotations__.keys()


def test_a_fallbacks_password_is_not_shown() -> None:
    with pytest.raises(ConfigError) as raised:
        Session(upstreams=ONE, fallback="http://user:secret@slb/?x")
    assert "secret" not in str(raised.value)


def test_a_redis_urls_password_is_not_shown() -> None:
    with pytest.raises(ConfigError) as raised:
        Session(redis_url=b"redis://user:secret@h/0")  # type: ignore[arg-type]
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize("data_dir", ["tables", Path("tables")])
def test_a_folder_may_be_a_text_or_a_path(data_dir: str | Path) -> None:
    Session(redis_url=REDIS, data_dir=data_dir)


def test_a_session_that_could_never_shed_is_no_session_to_shed_by() -> None:
    for session in (Session(upstreams=ONE), Session(upstreams=ONE, buffer_from=5)):
        with pytest.raises(ConfigError, match="max_outbound"):
            shed_when_full(session)


def test_a_list_that_cannot_be_meant_leaves_the_one_before() -> None:
    session = Session(upstreams=ONE)
    with pytest.raises(ConfigError):
        session.set_upstreams(["h:80", "h:80"])
    session.set_upstreams(["h:80"])


@pytest.mark.parametrize(
    ("fallback", "written"),
    [
        ("http://slb:8080/", "http://slb:8080"),
        ("http://u:p%40w@slb/a b/%7e/", "http://u:p%40w@slb/a%20b/~"),
        ("http://bücher.example/x", "http://xn--bcher-kva.example/x"),
    ],
)
def test_a_fallback_is_kept_as_a_url_is_written(fallback: str, written: str) -> None:
    assert checked_fallback(fallback) == written
