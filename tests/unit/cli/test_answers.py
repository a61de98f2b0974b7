"""The client commands before a server of a few lines: what they send, and what they make of its answers."""

import json
from typing import Any

import pytest

from tests.unit.cli.conftest import Server, Slb

MODEL = {
    "id": "m",
    "max_tokens_per_minute": 60,
    "max_concurrent_requests": 2,
    "weight": 1,
    "burst": 10,
    "paused": False,
}


READERS = [
    ("status", "--over", "0"),
    ("status", "--watch"),
    ("instances",),
    ("routes",),
    ("register", "/p", "h"),
    ("register", "/p", "10.0.0.1", "10.0.0.2"),
    ("deregister", "/p", "h"),
    ("drain", "h"),
    ("undrain", "h"),
    ("route", "set", "/p", "retries=1"),
    ("route", "unset", "/p", "retries"),
    ("route", "delete", "/p"),
    ("quota", "models"),
    ("quota", "models", "set", "m", "weight=1"),
    ("quota", "models", "delete", "m"),
    ("quota", "advice"),
    ("quota", "watch"),
    ("jobs", "submit", "m", "1"),
    ("jobs", "show", "one"),
    ("jobs", "list", "m"),
    ("jobs", "watch", "one"),
    ("jobs", "watch", "--model", "m"),
    ("jobs", "cancel", "one"),
    ("jobs", "pause", "m"),
    ("jobs", "resume", "m"),
    ("jobs", "dlq", "list", "m"),
    ("jobs", "dlq", "retry", "one"),
    ("jobs", "dlq", "retry", "--all"),
    ("jobs", "dlq", "delete", "one"),
]


@pytest.mark.parametrize("answer", [{"hello": "world"}, [{"hello": "world"}], [5], None], ids=json.dumps)
@pytest.mark.parametrize("words", READERS, ids=" ".join)
def test_what_is_no_slb_is_named_as_none_in_one_line(
    slb: Slb, server: Server, words: tuple[str, ...], answer: Any
) -> None:
    server.answer = answer
    code, out, err = slb(*words)
    assert (code, out) == (1, "")
    assert f"what answers at {server.url} is no slb" in err
    assert err.count("\n") == 1


def test_where_an_api_has_no_tls_that_is_printed(slb: Slb, server: Server) -> None:
    url = server.url.replace("http:", "https:")
    why = f"slb: no answer from {url}: the API there speaks no TLS (is slb serving there? --url or SLB_URL)\n"
    assert slb("routes", "--url", url) == (1, "", why)


def test_neither_is_it_one_where_only_the_outside_is_alike(slb: Slb, server: Server) -> None:
    server.answer = {"models": [{"name": "m"}]}
    code, _, err = slb("quota", "models")
    assert (code, err.count("\n")) == (1, 1)
    assert "no 'id'" in err


@pytest.mark.parametrize(
    ("written", "sent"),
    [
        ("burst=none", {"burst": None}),
        ("burst=null", {"burst": None}),
        ("weight=-1", {"weight": -1}),
        ("paused=true", {"paused": True}),
    ],
)
def test_what_is_set_on_a_model_is_for_the_server_to_judge(
    slb: Slb, server: Server, written: str, sent: dict[str, Any]
) -> None:
    server.answer = MODEL
    assert slb("quota", "models", "set", "m", written)[0] == 0
    assert server.sent == [sent]


@pytest.mark.parametrize("written", ["weight", "=1", "weight=", "weight=1.5", "weight=--1", "weight=x", "weight=²"])
def test_what_is_no_setting_of_a_model_is_not_sent(slb: Slb, server: Server, written: str) -> None:
    code, _, err = slb("quota", "models", "set", "m", written)
    assert (code, server.sent) == (2, [])
    assert "is not KEY=VALUE with a whole number, true, false or none" in err


def test_without_models_it_is_printed_how_one_is_made(slb: Slb, server: Server) -> None:
    server.answer = {"models": []}
    assert slb("quota", "models")[1] == (
        "There are no models yet: slb quota models set ID max_tokens_per_minute=... max_concurrent_requests=..."
        " makes one.\n"
    )


def test_attributes_of_an_upstream_that_was_there_are_printed_as_set(slb: Slb, server: Server) -> None:
    answer = {"path": "/p", "target": "h:80"}
    server.answer = {**answer, "added": False}
    assert slb("register", "/p", "h")[1] == "/p: h:80 was there already, now for good\n"
    assert slb("register", "/p", "h", "--zone", "z", "--weight", "2")[1] == (
        "/p: h:80 was there already, now for good, weight = 2 set, zone = z set\n"
    )
    server.answer = {**answer, "added": True}
    assert slb("register", "/p", "h", "--zone", "z")[1] == "/p: h:80 added\n"


def test_the_lease_of_a_registration_is_part_of_its_line(slb: Slb, server: Server) -> None:
    answer = {"path": "/p", "target": "h:80", "ttl": 90}
    server.answer = {**answer, "added": True}
    assert slb("register", "/p", "h", "--ttl", "90s")[1] == "/p: h:80 added, for 90s unless renewed\n"
    server.answer = {**answer, "added": False}
    assert slb("register", "/p", "h", "--ttl", "90s", "--weight", "2")[1] == (
        "/p: h:80 was there already, now for 90s unless renewed, weight = 2 set\n"
    )
    server.answer = [{"ip_address": f"10.0.0.{n}", "port": 80, "path": "/p", "added": n == 1} for n in (1, 2)]
    assert slb("register", "/p", "10.0.0.1", "10.0.0.2")[1] == (
        "/p: 10.0.0.1:80 added\n/p: 10.0.0.2:80 was there already, now for good\n"
    )


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        (
            ("register", "/p", "h", "--ttl", "soon"),
            "duration 'soon' is not written like 250ms, 1.5s or 2m\n",
        ),
        (("register", "/p", "h", "--ttl", "30"), "or 2m; is 30s meant?\n"),
        (("upstream", "--ttl", "30"), "or 2m; is 30s meant?\n"),
    ],
)
def test_a_duration_that_cannot_be_read_is_a_wrong_word(
    slb: Slb, server: Server, words: tuple[str, ...], fault: str
) -> None:
    code, _, err = slb(*words)
    assert (code, server.sent) == (2, [])
    assert err.endswith(fault)


@pytest.mark.parametrize("words", [("--for", "1h"), ("--here",)])
def test_options_for_dead_upstreams_need_dead(slb: Slb, server: Server, words: tuple[str, ...]) -> None:
    code, _, err = slb("upstreams", *words)
    assert (code, server.sent) == (2, [])
    assert "--dead" in err


@pytest.mark.parametrize(
    ("words", "ttl"),
    [
        (("register", "/p", "h"), "0"),
        (("register", "/p", "h"), "4s"),
        (("register", "/p", "h", "--keep"), "25h"),
        (("upstream",), "1s"),
    ],
)
def test_a_ttl_that_no_slb_takes_is_refused_at_once(
    slb: Slb, server: Server, words: tuple[str, ...], ttl: str
) -> None:
    code, _, err = slb(*words, "--ttl", ttl)
    assert (code, server.sent) == (2, [])
    assert err == f"slb: Invalid value for --ttl: {ttl} is not from 5s to 24h\n"


def test_a_change_that_its_instance_has_not_followed_yet_is_printed_as_one(slb: Slb, server: Server) -> None:
    server.status, server.answer = 202, {"path": "/p", "target": "h:80", "added": True}
    code, out, err = slb("register", "/p", "h")
    assert (code, out) == (0, "/p: h:80 added\n")
    assert "does not serve by it yet" in err
