"""The candidates of a lane's routes."""

from slb.balance.asking import Candidate
from slb.control.views import Views

FREE = (Candidate("u0", 0, 1),)
CAPPED = (Candidate("u0", 1, 1),)


def test_the_same_object_is_nothing_new() -> None:
    views = Views()
    assert views.put("/p", FREE)
    assert not views.put("/p", FREE)
    assert views.put("/p", CAPPED)


def test_there_is_a_cap_as_long_as_there_is_a_view_that_has_one() -> None:
    views = Views()
    seen: list[bool] = []
    for put in (FREE, CAPPED):
        views.put(f"/{len(seen)}", put)
        seen.append(views.is_capped)
    views.forget(lambda name: name == "/1")
    assert [*seen, views.is_capped] == [False, True, False]
    assert len(views) == 1
