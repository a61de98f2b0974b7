"""How many routes name each member."""

from hypothesis import given
from hypothesis import strategies as st

from slb.model import RouteRecord
from slb.routing.uses import Shift, Uses, note_changes
from tests.unit.routing.mirror_rig import A, B, C, D, Records, at_once, record

_tables = st.dictionaries(
    st.sampled_from(["/", "/p", "/q"]), st.sets(st.sampled_from([A, B, C, D])).map(lambda names: record(*names))
)


def shift(old: Records, new: Records) -> Shift:
    found: Shift = {}
    for _ in note_changes(old, {**dict.fromkeys(old), **new}, found):
        pass
    return found


@given(st.lists(_tables, min_size=1, max_size=5))
def test_table_after_table_the_uses_are_as_many_as_routes_name_a_member(tables: list[Records]) -> None:
    uses = Uses()
    before: Records = {}
    for table in tables:
        named = {member for each in before.values() for member in each.members}
        gone = uses.settle(at_once(uses.add(shift(before, table))))
        before = table
        for member in (A, B, C, D):
            assert uses.of(member) == sum(member in each.members for each in table.values())
        assert sorted(gone) == sorted(member for member in named if not uses.of(member))


def test_one_route_that_changes_shifts_as_a_whole_table_does() -> None:
    for old, new in ((record(A, B), record(B, C)), (None, record(A)), (record(A), None)):
        one: Shift = {}
        list(note_changes({"/p": old} if old else {}, {"/p": new}, one))
        assert one == shift({"/p": old} if old else {}, {"/p": new} if new else {})


def test_a_route_that_is_the_same_object_is_not_looked_into() -> None:
    same = record(A, B)
    assert shift({"/p": same}, {"/p": same}) == {}


def test_a_large_change_is_noted_in_slices() -> None:
    large: dict[str, RouteRecord] = {f"/{number}": record(A, B, C) for number in range(2000)}
    found: Shift = {}
    slices = sum(1 for _ in note_changes({}, large, found))
    assert slices >= 5
    assert found == {A: 2000, B: 2000, C: 2000}
