"""Which of two sides has the newer data."""

from slb.control.history import History, Snapshot, differing, missing, newer, state, with_states
from slb.model import RouteRecord

ONE, TWO = "10.1.1.1:1", "10.2.2.2:2"


def table(*members: str, history: History | None = None, settings: dict[str, str] | None = None) -> Snapshot:
    return Snapshot({"/a": RouteRecord(frozenset(members), settings)}, history=history or History())


def found(mine: Snapshot, theirs: Snapshot) -> set[str]:
    return {entry for entry in newer(mine, theirs) if entry is not None}


def test_what_has_a_higher_number_here_is_newer() -> None:
    mine = table(ONE, history=History({f"slb_a {ONE}": 7, f"slb_a {TWO}": 9, "slb:route:/a": 3}, floor=1))
    theirs = table(TWO, history=History({f"slb_a {ONE}": 7, f"slb_a {TWO}": 8, "slb:route:/a": 4}, floor=1))
    assert found(mine, theirs) == {f"slb_a {TWO}"}
    assert found(theirs, mine) == {"slb:route:/a"}


def test_what_the_other_log_has_no_more_is_as_old_as_its_floor() -> None:
    mine = table(history=History({f"slb_a {ONE}": 7, f"slb_a {TWO}": 12}))
    assert found(mine, table(history=History(floor=10))) == {f"slb_a {TWO}"}


def test_a_side_that_has_gone_back_behind_a_floor_is_older_in_all_that_differs_and_has_not_changed() -> None:
    mine = table(ONE, settings={"retries": "2", "policy": "p2c"}, history=History(floor=10))
    theirs = table(TWO, settings={"retries": "1"}, history=History({"slb:route:/a retries": 11}, floor=5))
    assert found(mine, theirs) == {f"slb_a {ONE}", f"slb_a {TWO}", "slb:route:/a policy"}
    assert found(theirs, mine) == {"slb:route:/a retries"}


def test_nothing_is_newer_where_both_know_the_same() -> None:
    history = History({f"slb_a {ONE}": 7}, floor=3)
    assert found(table(ONE, history=history), table(TWO, history=history.copy())) == set()


def test_what_is_missing_is_what_one_has_and_the_other_lacks_whatever_else_differs() -> None:
    mine = Snapshot(
        {"/a": RouteRecord(frozenset({ONE, TWO}), {"retries": "2", "policy": "p2c"})}, {ONE: {"weight": "1"}}
    )
    theirs = Snapshot({"/a": RouteRecord(frozenset({TWO}), {"retries": "1"})}, {ONE: {"weight": "2", "zone": "a"}})
    assert set(missing(mine, theirs)) - {None} == {f"slb_a {ONE}", "slb:route:/a policy"}
    assert set(missing(theirs, mine)) - {None} == {f"slb:upstream:{ONE} zone"}


def test_a_floor_that_rises_forgets_what_lies_below_it() -> None:
    history = History({"slb:route:/a": 5, "slb:route:/b": 6})
    list(history.raise_floor(5))
    assert history.of == {"slb:route:/b": 6}
    assert [history.revision(f"slb:route:/{name}") for name in "abc"] == [5, 6, 5]
    list(history.raise_floor(4))
    assert history.floor == 5


def test_states_turn_one_table_into_the_other() -> None:
    mine = Snapshot(
        {"/a": RouteRecord(frozenset({ONE})), "/set": RouteRecord(settings={"policy": "p2c"})},
        {ONE: {"weight": "2"}},
    )
    theirs = Snapshot(
        {"/a": RouteRecord(frozenset({TWO})), "/gone": RouteRecord(frozenset({ONE}))}, {TWO: {"weight": "1"}}
    )
    entries = [entry for entry in differing(mine, theirs) if entry is not None]
    assert set(entries) == {
        *(f"slb_a {ONE}", f"slb_a {TWO}", f"slb_gone {ONE}", "slb:route:/set policy"),
        *(f"slb:upstream:{ONE} weight", f"slb:upstream:{TWO} weight"),
    }
    states = [each for entry in entries if (each := state(entry, mine))]
    both = with_states(theirs, states)
    assert (both.records, both.attributes) == (mine.records, mine.attributes)


Numbered = dict[str, int]
"""field -> number; that of the whole hash under the empty name."""


def of_route(settings: dict[str, str], numbers: Numbered) -> Snapshot:
    entries = {f"slb:route:/a {name}".rstrip(): number for name, number in numbers.items()}
    return table(settings=settings, history=History(entries))


def hash_after(mine: dict[str, str], numbers: Numbered, theirs: dict[str, str], their_numbers: Numbered) -> object:
    """The settings of `/a` once all that is newer in `mine` has been brought to `theirs`."""
    one, other = of_route(mine, numbers), of_route(theirs, their_numbers)
    states = [each for entry in sorted(found(one, other)) if (each := state(entry, one))]
    after, reverse = (with_states(other, order).records["/a"].settings for order in (states, states[::-1]))
    assert after == reverse
    return after


def test_fields_of_a_hash_change_each_by_itself() -> None:
    assert hash_after(
        {"max_inflight": "5", "policy": "p2c"}, {"max_inflight": 7, "policy": 7}, {"retries": "2"}, {"retries": 9}
    ) == {"max_inflight": "5", "policy": "p2c", "retries": "2"}
    assert hash_after({"retries": "2"}, {"policy": 7}, {"policy": "p2c", "retries": "1"}, {"retries": 8}) == {
        "retries": "1"
    }


def test_the_number_of_a_hash_that_was_replaced_whole_is_one_of_each_field() -> None:
    older = {"policy": "p2c", "retries": "1"}
    assert hash_after({"retries": "2"}, {"": 7}, older, {"policy": 5}) == {"retries": "2"}
    assert hash_after({"retries": "2"}, {"": 7}, older, {"policy": 8}) == {"policy": "p2c", "retries": "2"}
    assert hash_after(older, {"policy": 5, "retries": 6}, {"hash_key": "ip"}, {"": 7}) == {"hash_key": "ip"}
    assert hash_after(older, {"": 4, "policy": 8}, {"hash_key": "ip"}, {"": 7}) == {
        "hash_key": "ip",
        "policy": "p2c",
    }


def test_names_that_are_none_of_ours_show_nothing() -> None:
    for entry in (
        "",
        "slb_a",
        "slb_a not a member",
        "slb_a//b 10.1.1.1:1",
        "slb:upstream:x y",
        "slb:route:/a a b",
        "floor",
        "slb:x",
    ):
        assert state(entry, table(ONE)) is None, entry
