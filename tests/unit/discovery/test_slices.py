"""From EndpointSlices to members."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slb.discovery.found import Member
from slb.discovery.slices import Extras, Slice, Wanted, extras_of, members_of, slice_of
from tests.support.kube_api import endpoint
from tests.support.kube_api import slice_of as written

HTTP = Wanted("http")


def slices(*several: dict[str, Any]) -> list[Slice]:
    return [each for each in map(slice_of, several) if each is not None]


def found(*several: dict[str, Any], wanted: Wanted = HTTP) -> dict[str, bool]:
    """Members, and whether they drain."""
    return {name: each.is_draining for name, each in members_of(slices(*several), wanted, {}).items()}


@pytest.mark.parametrize(
    ("conditions", "drains"),
    [
        ({"ready": True}, False),
        ({"ready": None}, False),
        ({"ready": True, "serving": True, "terminating": False}, False),
        ({"ready": False, "serving": True, "terminating": True}, True),
        ({"ready": False, "serving": False, "terminating": True}, True),
        ({"ready": True, "terminating": True}, True),
        ({"ready": False}, None),
        ({"ready": False, "serving": True, "terminating": False}, None),
    ],
)
def test_conditions_beside_a_ready_pod(conditions: dict[str, Any], drains: bool | None) -> None:
    shown = found(written([endpoint("10.0.0.1", **conditions), endpoint("10.0.0.2")]))
    assert shown.get("10.0.0.1:8000") is drains
    assert shown["10.0.0.2:8000"] is False


def test_where_all_terminate_those_that_serve_take_requests() -> None:
    serving = endpoint("10.0.0.1", ready=False, serving=True, terminating=True)
    ended = endpoint("10.0.0.2", ready=False, serving=False, terminating=True)
    assert found(written([serving, ended])) == {"10.0.0.1:8000": False, "10.0.0.2:8000": True}


def test_an_endpoint_in_two_slices_is_one_member_and_terminates_if_either_says_so() -> None:
    ending = endpoint("10.0.0.1", ready=False, serving=True, terminating=True)
    both = (
        written([endpoint("10.0.0.1"), endpoint("10.0.0.2")], name="old"),
        written([ending], name="new"),
    )
    assert found(*both) == found(*reversed(both)) == {"10.0.0.1:8000": True, "10.0.0.2:8000": False}


def test_an_address_that_another_pod_has_got_is_ready() -> None:
    ending = endpoint("10.0.0.1", pod="before", ready=False, serving=True, terminating=True)
    assert found(written([ending, endpoint("10.0.0.1", pod="now")])) == {"10.0.0.1:8000": False}


def test_ports_by_name_differ_between_slices() -> None:
    old = written(
        [endpoint("10.0.0.1")], name="old", ports=[{"name": "http", "port": 80}, {"name": "m", "port": 9}]
    )
    new = written([endpoint("10.0.0.2")], name="new", ports=[{"name": "http", "port": 81, "appProtocol": "https"}])
    assert found(old, new) == {"10.0.0.1:80": False, "https://10.0.0.2:81": False}
    assert found(old, new, wanted=Wanted("9")) == {"10.0.0.1:9": False}
    assert found(old, new, wanted=Wanted("")) == {"https://10.0.0.2:81": False}  # which of two, nobody said
    assert found(old, new, wanted=Wanted("http", "https")).keys() == {"https://10.0.0.1:80", "https://10.0.0.2:81"}


def test_all_ports_no_ports_and_other_protocols() -> None:
    assert found(written([endpoint("10.0.0.1")], ports=None), wanted=Wanted("80")) == {"10.0.0.1:80": False}
    assert found(written([endpoint("10.0.0.1")], ports=None)) == {}
    udp = [{"name": "http", "port": 80, "protocol": "UDP"}]
    assert found(written([endpoint("10.0.0.1")], ports=udp)) == {}


def test_a_pod_with_two_addresses_is_one_member() -> None:
    four, six = endpoint("10.0.0.1", pod="a"), endpoint("fd00::1", pod="a")
    only_six = endpoint("fd00::2", pod="b")
    both = written([four], name="4"), written([six, only_six], name="6", family="IPv6")
    assert found(*both) == {"10.0.0.1:8000": False, "[fd00::2]:8000": False}
    assert found(*both, wanted=Wanted("http", family="ipv6")).keys() == {"[fd00::1]:8000", "[fd00::2]:8000"}


def test_what_pods_and_the_service_say() -> None:
    pods = {"a": Extras(slots=4), "c": Extras(weight=9)}
    shown = members_of(
        slices(written([endpoint("10.0.0.1", pod="a"), endpoint("10.0.0.2", pod="b")])), HTTP, pods, Extras(2, 3)
    )
    assert shown == {
        "10.0.0.1:8000": Member(slots=4, weight=3, zone="zone-a", node="node-1"),
        "10.0.0.2:8000": Member(slots=2, weight=3, zone="zone-a", node="node-1"),
    }


def test_annotations_out_of_range_say_nothing() -> None:
    assert extras_of(None) == Extras()
    assert extras_of({"slb/slots": "10000", "slb/weight": "1000", "slb/scheme": "https"}) == Extras(
        10_000, 1000, "https"
    )
    for text in ("0", "-1", "10001", "1.5", "²", "", 4, "9" * 5000):
        assert extras_of({"slb/slots": text, "slb/scheme": text}) == Extras()


def test_what_is_no_slice_is_refused() -> None:
    assert slice_of({"metadata": {"name": "x"}}) is None
    for broken in ({}, {"metadata": None}, {**written([]), "endpoints": 1}, {**written([]), "ports": "x"}):
        with pytest.raises(ValueError, match="no EndpointSlice"):
            slice_of(broken)


conditions = st.fixed_dictionaries(
    {}, optional={name: st.sampled_from([True, False, None]) for name in ("ready", "serving", "terminating")}
)
endpoints = st.lists(
    st.builds(
        lambda last, pod, said: {**endpoint(f"10.0.0.{last}", pod=pod), "conditions": said},
        st.integers(1, 5),
        st.sampled_from(["a", "b", "c", ""]),
        conditions,
    ),
    max_size=6,
)


@given(st.lists(endpoints, max_size=4), st.randoms())
def test_the_order_of_slices_makes_no_difference_and_a_ready_pod_is_never_lost(
    several: list[Any], rng: Any
) -> None:
    made = [written(each, name=f"s{number}") for number, each in enumerate(several)]
    shown = found(*made)
    rng.shuffle(made)
    assert found(*made) == shown
    for each in (each for one in several for each in one):
        said, member = each["conditions"], f"{each['addresses'][0]}:8000"
        if said.get("ready") is not False:
            assert member in shown


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: (
            st.lists(inner)
            | st.dictionaries(
                st.sampled_from(
                    [
                        "metadata",
                        "labels",
                        "endpoints",
                        "addresses",
                        "ports",
                        "port",
                        "conditions",
                        "name",
                        "kubernetes.io/service-name",
                        "targetRef",
                        "topology",
                    ]
                ),
                inner,
            )
        ),
        max_leaves=12,
    )
)
def test_no_object_whatever_is_in_it_is_more_than_refused(anything: Any) -> None:
    try:
        made = slice_of(
            {
                **written([endpoint("10.0.0.1")]),
                **(anything if isinstance(anything, dict) else {"endpoints": anything}),
            }
        )
    except ValueError:
        return
    if made is not None:
        members_of([made], HTTP, {})
