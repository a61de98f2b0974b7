"""Whatever happens one after another, the mirror shows what a full sync of the outcome shows."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from slb.model import RouteRecord
from tests.unit.routing.mirror_rig import A, B, C, D, Swaps, make_mirror, replace, shown

_records = st.builds(
    lambda members, settings: RouteRecord(frozenset(members), settings),
    st.sets(st.sampled_from([A, B, C, D])),
    # No value that is bad for its name: what stands in its place is the one thing that depends on the past.
    st.fixed_dictionaries(
        {},
        optional={
            "retries": st.sampled_from(["1", "2"]),
            "policy": st.sampled_from(["p2c", "random"]),
            "bad": st.just("1"),
        },
    ),
)
_hashes = st.dictionaries(
    st.sampled_from(["weight", "drain", "zone", "other"]), st.sampled_from(["1", "5", "", "z"]), max_size=2
)
_paths = st.sampled_from(["/", "/p", "/q", "/p/q"])
_changes = st.tuples(
    st.dictionaries(_paths, st.none() | _records, max_size=3),
    st.dictionaries(st.sampled_from([A, B, C, D]), _hashes, max_size=2),
)


@given(st.dictionaries(_paths, _records), st.lists(_changes, max_size=6))
def test_change_by_change_the_mirror_shows_what_a_full_sync_of_the_outcome_shows(
    first: dict[str, RouteRecord],
    changes: Sequence[tuple[dict[str, RouteRecord | None], dict[str, dict[str, str]]]],
) -> None:
    mirror = make_mirror()
    swaps = Swaps(mirror)
    replace(mirror, first)
    records, attributes = dict(first), dict[str, dict[str, str]]()
    for changed, hashes in changes:
        named, live = set(mirror.upstreams), dict(mirror.upstreams)
        mirror.update(changed, hashes)
        records = {path: each for path, each in {**records, **changed}.items() if each is not None}
        attributes = {member: each for member, each in {**attributes, **hashes}.items() if each}
        names = {member for each in records.values() for member in each.members}
        assert swaps.gone[-1] == sorted(named - names)
        assert all(mirror.upstream(member) is live[member] for member in named & names)
    at_once, again = make_mirror(), shown(mirror)
    replace(at_once, records, attributes)
    assert again == shown(at_once)
    replace(mirror, records, attributes)
    assert shown(mirror) == again
    assert swaps.gone[-1] == []
