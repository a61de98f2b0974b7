"""The document of `slb export`: what it refuses, and that it is read as it was written."""

import string

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slb.cli.document import Document, Route, as_json, as_toml, is_below, read
from slb.errors import ConfigError
from slb.quotas import Limits
from tests.support.fuzzing import examples

WHOLE = """
prefix = "/"
[routes."/p1/"]
members = ["10.0.0.10", "10.0.0.9:80", "https://GPU.test", "dns://flux.internal:8000"]
policy = "p2c"
retries = 2
connect_timeout = "0.25s"
zone_affinity = true
balance_factor = 1.5
priorities = { low = 1, high = 8 }
health_path = "none"
[routes."/others"]
[upstreams."10.0.0.9"]
weight = 3
slots = 1
[models.flux]
endpoint = "/generate"
max_retries = 3
poll_interval = "500ms"
fallback_models = ["black-forest/schnell"]
[limits."org/gpt-4.1"]
max_tokens_per_minute = 600
max_concurrent_requests = 3
"""
READ = Document(
    "/",
    {
        "/p1": Route(
            {
                "policy": "p2c",
                "retries": 2,
                "connect_timeout": "250ms",
                "zone_affinity": True,
                "balance_factor": 1.5,
                "priorities": "high=8,low=1",
                "health_path": "none",
            },
            frozenset({"10.0.0.10:80", "10.0.0.9:80", "https://gpu.test:443", "dns://flux.internal:8000"}),
        ),
        "/others": Route({}),
    },
    {"10.0.0.9:80": {"weight": 3}},
    {
        "flux": {
            "endpoint": "/generate",
            "max_retries": 3,
            "poll_interval": 0.5,
            "fallback_models": ["black-forest/schnell"],
        }
    },
    {"org/gpt-4.1": Limits(600, 3)},
)


def test_everything_is_read_in_its_normal_form() -> None:
    assert read(WHOLE) == READ


IN_ORDER = """
[routes."/others"]

[routes."/p1"]
members = [
    "10.0.0.9:80",
    "10.0.0.10:80",
    "dns://flux.internal:8000",
    "https://gpu.test:443",
]
balance_factor = 1.5
connect_timeout = "250ms"
health_path = "none"
policy = "p2c"
priorities = "high=8,low=1"
retries = 2
zone_affinity = true

[upstreams."10.0.0.9:80"]
weight = 3

[models.flux]
endpoint = "/generate"
fallback_models = [
    "black-forest/schnell",
]
max_retries = 3
poll_interval = 0.5

[limits."org/gpt-4.1"]
max_tokens_per_minute = 600
max_concurrent_requests = 3
"""


def test_what_is_written_has_a_line_for_each_setting_and_each_member_in_order() -> None:
    heading, _, text = as_toml(READ).partition("\n")
    assert heading.startswith("# ")
    assert text == IN_ORDER


@pytest.mark.parametrize(
    "document",
    [
        READ,
        Document(),
        Document("/p", {}, {}, None, None),
        Document("/", {"/p": Route({}, frozenset())}, {}, {}, {}),
        Document("/", None, None, {"flux": {"id_field": 'a "b"\\\n\x7f\u2603'}}, {"m": Limits(600, 3, 2, 50)}),
    ],
)
def test_what_was_written_is_read_as_it_was(document: Document) -> None:
    assert read(as_toml(document)) == document
    assert read(as_json(document)) == document


NAMES = st.text(string.ascii_letters + string.digits, min_size=1, max_size=8)
PATHS = st.lists(NAMES, max_size=3).map(lambda parts: "/" + "/".join(parts))


@settings(max_examples=examples(300), deadline=None)
@given(
    st.dictionaries(PATHS, st.dictionaries(st.sampled_from(["retries", "queue_limit"]), st.integers(1, 9))),
    st.dictionaries(NAMES, st.dictionaries(st.just("id_field"), st.text(min_size=1, max_size=20))),
)
def test_any_text_is_read_as_it_was_written(
    routes: dict[str, dict[str, int]], models: dict[str, dict[str, str]]
) -> None:
    made = {path: Route(each, frozenset({"10.0.0.1:80"})) for path, each in routes.items()}
    document = Document("/", made, {}, models, None)
    assert read(as_toml(document)) == document
    assert read(as_json(document)) == document


@pytest.mark.parametrize(
    ("text", "faults"),
    [
        ("[route.'/p']", ["route: there is no table of this name; is routes meant?"]),
        ("routes = 3", ["routes: has to be a table"]),
        ("[routes]\nretries = 2", ["routes.retries: has to be a table"]),
        (
            '[routes."/p"]\nretires = 2\nmax_inflight = -1\nmember = []',
            [
                'routes."/p": retires: there is no route setting of this name; is retries meant?',
                'routes."/p": max_inflight = -1: Input should be greater than or equal to 0',
                'routes."/p": member: there is no route setting of this name; is members meant?',
            ],
        ),
        ('[routes."p"]', ["routes.p: path 'p' does not start with '/'"]),
        ('[routes."/p"]\n[routes."/p/"]', ['routes."/p/": /p stands there twice']),
        ('[routes."/p"]\nmembers = "10.0.0.1"', ['routes."/p".members: has to be a list of upstreams']),
        (
            '[routes."/p"]\nmembers = ["10.0.0.1", "10.0.0.1:80", "10.0.0.1:99999"]',
            ['routes."/p".members: 10.0.0.1:80 stands there twice', 'routes."/p".members: target'],
        ),
        ('prefix = "/a"\n[routes."/ab"]', ['routes."/ab": is not below prefix, /a']),
        ("prefix = 3", ["prefix: has to be a path"]),
        ('prefix = "/p"\n[models.flux]', ["models.flux: its route, /jobs/flux, is not below prefix, /p"]),
        ('prefix = "/p"\n[limits.m]', ["limits: models of the quota router belong to no path"]),
        ('[upstreams."10.0.0.1:80"]\nweight = 3', ['upstreams."10.0.0.1:80": no route in this file has it']),
        (
            '[routes."/p"]\nmembers = ["h"]\n[upstreams.h]\nweight = "3"\nweigth = 3\ndrain = true',
            [
                "upstreams.h.drain: is a state of the moment, which no file has: slb drain",
                "upstreams.h.weight: Input should be a valid integer",
                "upstreams.h.weigth: there is no field of this name",
            ],
        ),
        (
            "[models.flux]\npaused = true\nmax_retries = -1",
            ["models.flux.paused: is a state", "models.flux.max_retries"],
        ),
        ("[limits.m]\nweight = 2", ["limits.m: max_tokens_per_minute and max_concurrent_requests has to be given"]),
        ('{"routes": {"/p": {"pool": null}}}', ['routes."/p".pool: null is no value']),
        ('{"routes": {"/p": {}, "/p": {}}}', ["'/p' stands there twice"]),
        ('{"routes": NaN}', ["NaN is no number"]),
        ("[routes", ["Expected ']' at the end of a table declaration"]),
        ('{"a": ' * 100_000, []),
        ("a = " + "[" * 100_000, []),
    ],
)
def test_what_cannot_be_used_is_refused_by_its_place(text: str, faults: list[str]) -> None:
    with pytest.raises(ConfigError) as refused:
        read(text)
    for each in faults:
        assert each in str(refused.value)
    assert "\n" not in str(refused.value)


def test_of_many_faults_the_first_are_named_and_the_others_counted() -> None:
    with pytest.raises(ConfigError, match=r"limits\.m19: .*; and 30 more$"):
        read("".join(f"[limits.m{number}]\n" for number in range(50)))


def test_a_prefix_goes_by_whole_segments() -> None:
    assert [path for path in ("/", "/a", "/a/b", "/ab") if is_below(path, "/a")] == ["/a", "/a/b"]
    assert is_below("/a", "/")
    assert is_below("/", "/")
