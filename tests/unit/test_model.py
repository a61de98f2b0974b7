"""What may be set on a route and on an upstream; the rest is refused, or is as if it were not there."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from slb.model import RouteSettings, Upstream, UpstreamAttributes, setting_fault, usable_settings


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("policy", "p2c"),
        ("retries", "0"),
        ("retries", 10),
        ("connect_timeout", "250ms"),
        ("request_timeout", "0"),
        ("request_timeout", 0),
        ("strip_prefix", "true"),
        ("strip_prefix", False),
        ("policy", "least_inflight"),
        ("pool", "/llama/7b"),
        ("max_inflight", "0"),
        ("max_inflight", 1_000_000),
        ("when_full", "queue"),
        ("queue_limit", 1),
        ("queue_timeout", "2m"),
        ("priorities", "critical=8, normal=3,batch=1"),
        ("priorities", ""),
        ("priorities", {"critical": 8, "normal": "3"}),
        ("priorities", {}),
        ("priority_header", "x-class"),
        ("fade_in", "0"),
        ("fade_in", "90s"),
    ],
)
def test_a_setting_in_its_range_is_taken(name: str, value: object) -> None:
    assert setting_fault(name, value) is None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("policy", "fastest"),
        ("retries", "-1"),
        ("retries", "11"),
        ("retries", "two"),
        ("connect_timeout", "0"),
        ("first_byte_timeout", "0s"),
        ("idle_timeout", "5"),
        ("idle_timeout", 5),
        ("request_timeout", "-1s"),
        ("strip_prefix", "perhaps"),
        ("pool", "llama"),
        ("pool", "/a/../.."),
        ("pool", "/%00"),
        ("pool", "/" + "x" * 2048),
        ("max_inflight", -1),
        ("max_inflight", 1_000_001),
        ("max_inflight", "1e3"),
        ("max_inflight", True),
        ("retries", False),
        ("balance_factor", True),
        ("balance_factor", 0.99),
        ("balance_factor", "nan"),
        ("when_full", "drop"),
        ("queue_limit", 0),
        ("queue_limit", 1_000_001),
        ("queue_timeout", "0"),
        ("queue_timeout", "-1s"),
        ("queue_timeout", "8761h"),
        ("queue_timeout", "99999999999h"),
        ("priorities", "critical"),
        ("priorities", "critical=8,"),
        ("priorities", "critical=8;normal=3"),
        ("priorities", "critical=0"),
        ("priorities", "critical=1001"),
        ("priorities", "critical=-1"),
        ("priorities", "critical=1.5"),
        ("priorities", "critical=8,critical=3"),
        ("priorities", "Critical=8"),
        ("priorities", "a b=8"),
        ("priorities", "=8"),
        ("priorities", "x" * 33 + "=1"),
        ("priorities", ",".join(f"c{number}=1" for number in range(17))),
        ("priorities", {"critical": True}),
        ("priorities", {"critical": 1.5}),
        ("priorities", {"critical": "٣"}),
        ("priorities", {"": 1}),
        ("priorities", ["critical"]),
        ("priorities", 8),
        ("priority_header", ""),
        ("priority_header", "X Priority"),
        ("priority_header", "X-Priority:"),
        ("priority_header", "X-Priority\n"),
        ("fade_in", "-1s"),
        ("fade_in", "1000000h"),
        ("fade_in", 30),
    ],
)
def test_a_setting_out_of_its_range_is_refused_naming_it_and_the_value(name: str, value: object) -> None:
    fault = setting_fault(name, value)
    assert fault is not None
    shown = repr(value) if len(repr(value)) <= 200 else f"{repr(value)[:200]}..."
    assert fault.startswith(f"{name} = {shown}: ")
    assert "Value error" not in fault


@pytest.mark.parametrize("name", ["", "polcy", "model_config", "__class__", "health_check"])
def test_an_unknown_setting_is_refused_by_its_name(name: str) -> None:
    assert setting_fault(name, "1") == f"{name}: there is no route setting of this name"


def test_usable_settings_are_those_without_a_fault() -> None:
    kept, faults = usable_settings({"retries": "2", "policy": "x", "idle_timeout": "1s", "colour": "red"})
    assert kept == {"retries": "2", "idle_timeout": "1s"}
    assert [fault.split(" ")[0].rstrip(":") for fault in faults] == ["policy", "colour"]


@given(st.dictionaries(st.sampled_from(sorted(RouteSettings.model_fields)), st.text(max_size=8)))
def test_whatever_a_hash_holds_what_is_usable_of_it_makes_settings(written: dict[str, str]) -> None:
    kept, faults = usable_settings(written)
    RouteSettings.model_validate(kept)
    assert len(kept) + len(faults) == len(written)


def test_durations_are_seconds_inside_and_written_with_a_unit_outside() -> None:
    settings = RouteSettings.model_validate({"connect_timeout": "250ms", "first_byte_timeout": "2m"})
    assert (settings.connect_timeout, settings.first_byte_timeout) == (0.25, 120.0)
    shown = settings.model_dump()
    assert (shown["connect_timeout"], shown["first_byte_timeout"], shown["request_timeout"]) == ("250ms", "2m", "0")


def test_settings_that_are_shown_can_be_set_again() -> None:
    written = {"policy": "random", "idle_timeout": "1234567s", "queue_timeout": "8760h", "retries": 3}
    settings = RouteSettings.model_validate(written)
    assert RouteSettings.model_validate(settings.model_dump()) == settings


def test_priorities_are_ordered_by_weight_and_written_as_they_are_typed() -> None:
    for written in ("batch=1,critical=8,also=1", {"batch": 1, "critical": 8, "also": 1}):
        settings = RouteSettings.model_validate({"priorities": written})
        assert settings.priorities == (("critical", 8), ("also", 1), ("batch", 1))
        assert settings.model_dump()["priorities"] == "critical=8,also=1,batch=1"
        assert RouteSettings.model_validate(settings.model_dump()) == settings
        assert hash(settings.priorities)
    assert RouteSettings().priorities == ()


def test_a_pool_has_the_form_of_a_path() -> None:
    assert RouteSettings.model_validate({"pool": "//gpus/{a}/"}).pool == "/gpus/%7Ba%7D"
    assert RouteSettings().pool is None


def test_settings_cannot_be_changed_once_made() -> None:
    with pytest.raises(ValidationError):
        RouteSettings().retries = 2


def test_an_upstream_is_made_from_its_member_and_its_hash() -> None:
    found = Upstream.of(
        "https://[2001:db8::1]:8443",
        {"weight": "3", "slots": "8", "zone": "a", "node": "n1", "drain": "true", "joined": "1.5"},
    )
    assert (found.scheme, found.host, found.port) == ("https", "2001:db8::1", 8443)
    assert (found.weight, found.slots, found.zone, found.node) == (3, 8, "a", "n1")
    assert (found.drain, found.joined) == (True, 1.5)
    assert found.authority == "[2001:db8::1]:8443"


def test_an_upstream_without_a_hash_has_the_defaults() -> None:
    found = Upstream.of("gpu-1")
    assert (found.member, found.weight, found.slots, found.zone, found.drain) == ("gpu-1:80", 1, 1, "", False)
    assert Upstream.of("gpu-1:80", {}) == found


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("weight", "0"),
        ("weight", "1001"),
        ("weight", "heavy"),
        ("slots", "0"),
        ("slots", "10001"),
        ("zone", "a b"),
        ("zone", "x" * 254),
        ("node", "\n"),
        ("drain", "perhaps"),
        ("joined", "nan"),
        ("joined", "-1"),
        ("other", "1"),
    ],
)
def test_a_bad_attribute_keeps_its_default_and_the_others_hold(name: str, value: str) -> None:
    good = {"zone": "a"} if name != "zone" else {"node": "n"}
    assert Upstream.of("h:1", {name: value, **good}) == Upstream.of("h:1", good)


def test_what_a_person_sets_on_an_upstream_is_not_guessed_at() -> None:
    for attributes in ({"weight": 0}, {"zone": "a b"}, {"drain": True}, {"colour": "red"}):
        with pytest.raises(ValidationError):
            UpstreamAttributes.model_validate(attributes)
