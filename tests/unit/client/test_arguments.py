"""Bad arguments are refused by name, before anything is opened."""

from typing import Any

import pytest

from slb.client import Session
from slb.errors import ConfigError

ONE = ["10.0.0.1:80"]
FALLBACK = "http://slb:8080"


@pytest.mark.parametrize(
    ("arguments", "said"),
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
        ({"upstreams": ONE, "settings": {"colour": "red"}}, "settings: colour"),
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
    ],
)
def test_a_bad_argument_is_refused_by_name(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as raised:
        Session(**arguments)
    assert said in str(raised.value)


def test_a_fallbacks_password_is_not_shown() -> None:
    with pytest.raises(ConfigError) as raised:
        Session(upstreams=ONE, fallback="http://user:secret@slb/?x")
    assert "secret" not in str(raised.value)


def test_a_list_that_cannot_be_meant_leaves_the_one_before() -> None:
    session = Session(upstreams=ONE)
    with pytest.raises(ConfigError):
        session.set_upstreams(["h:80", "h:80"])
    session.set_upstreams(["h:80"])
