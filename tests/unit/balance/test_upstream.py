"""In flight is the number of live handles."""

from slb.balance.upstream import Handle
from tests.unit.balance.upstreams import upstream


def test_a_request_is_in_flight_from_its_handle_to_the_release() -> None:
    live = upstream("a")
    first, second = Handle(live), Handle(live)
    assert live.inflight == 2
    first.release()
    assert live.inflight == 1
    second.release()
    assert live.inflight == 0


def test_a_handle_is_released_once_however_often_it_is_asked() -> None:
    live = upstream("a")
    handle, _ = Handle(live), Handle(live)
    for _ in range(3):
        handle.release()
    assert live.inflight == 1
