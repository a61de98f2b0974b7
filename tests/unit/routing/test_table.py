"""Which route a path takes: the longest prefix of whole segments."""

from collections.abc import Iterable
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slb.balance.round_robin import RoundRobin
from slb.model import RouteSettings
from slb.routing.table import Route, Table


def route(path: str) -> Route:
    return Route(path, RouteSettings(), (), (), RoundRobin(Random(1)))


def table(*paths: str) -> Table:
    return Table.of({path: route(path) for path in paths})


def matched(found: Table, path: str) -> str | None:
    taken = found.match(path)
    return None if taken is None else taken.path


def by_segments(paths: Iterable[str], path: str) -> str | None:
    """The plainest definition."""
    wanted = [segment for segment in path.split("/") if segment]
    fitting = [each for each in paths if wanted[: len(each.split("/")) - 1] == each.split("/")[1:] or each == "/"]
    return max(fitting, key=lambda each: (each != "/", each.count("/")), default=None)


_paths = st.lists(st.sampled_from(["a", "b", "ab", "%2B"]), max_size=5).map(lambda parts: "/" + "/".join(parts))


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/api", "/api"),
        ("/api/x", "/api"),
        ("/api/v1", "/api/v1"),
        ("/api/v1/x/y/z", "/api/v1"),
        ("/api/v10", "/api"),
        ("/apix", None),
        ("/ap", None),
        ("/", None),
        ("/x/api", None),
    ],
)
def test_the_longest_prefix_of_whole_segments_wins(path: str, expected: str | None) -> None:
    assert matched(table("/api", "/api/v1"), path) == expected


def test_the_root_takes_what_no_other_route_does() -> None:
    found = table("/", "/api")
    assert [matched(found, path) for path in ("/", "/x", "/apix/y", "/api/y")] == ["/", "/", "/", "/api"]


def test_a_table_without_routes_takes_nothing() -> None:
    assert [matched(table(), path) for path in ("/", "/a", "/a/b/c")] == [None, None, None]


@given(st.sets(_paths, max_size=8), _paths)
def test_matching_agrees_with_comparing_every_route_by_segments(paths: set[str], path: str) -> None:
    assert matched(table(*paths), path) == by_segments(paths, path)


@given(st.lists(st.tuples(_paths, st.booleans()), max_size=12), _paths)
def test_a_table_changed_step_by_step_matches_like_one_made_at_once(
    steps: list[tuple[str, bool]], path: str
) -> None:
    found, paths = table(), set[str]()
    for each, is_added in steps:
        before = dict(found.routes)
        found_before, found = found, found.changed({each: route(each) if is_added else None})
        paths = paths | {each} if is_added else paths - {each}
        assert dict(found_before.routes) == before
    assert matched(found, path) == by_segments(paths, path)
    assert set(found.routes) == paths


def test_the_routes_of_a_table_cannot_be_changed_from_outside() -> None:
    with pytest.raises(TypeError):
        table("/a").routes["/b"] = route("/b")  # type: ignore[index]


def counted(path: str) -> Route:
    return Route(path, RouteSettings(max_inflight=1), (), (), RoundRobin(Random(1)))


def test_the_routes_that_are_counted_follow_each_change_of_the_table() -> None:
    before = Table.of({"/a": route("/a"), "/b": counted("/b"), "/c": counted("/c")})
    after = before.changed({"/a": counted("/a"), "/b": route("/b"), "/c": None, "/d": counted("/d")})
    assert (set(before.counted), set(after.counted)) == ({"/b", "/c"}, {"/a", "/d"})
    assert all(after.counted[path] is after.routes[path] for path in after.counted)
