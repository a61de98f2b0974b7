"""The traffic that /status shows of several workers."""

from slb.supervisor.sums import added, lasting, no_traffic


def test_without_workers_every_figure_is_there_and_zero() -> None:
    shown = added(())
    assert shown == no_traffic()
    assert (shown["requests"], shown["by_code"], shown["client_connections"]) == (0, {}, 0)


def test_what_a_worker_counted_outlives_it_and_what_it_held_does_not() -> None:
    one = {
        "requests": 3,
        "by_code": {"200": 2, "503": 1},
        "inflight": 2,
        "inflight_by_upstream": {"10.0.0.1:80": 2},
        "client_connections": 5,
    }
    both = added((one, one))
    assert (both["requests"], both["by_code"], both["inflight_by_upstream"]) == (
        6,
        {"200": 4, "503": 2},
        {"10.0.0.1:80": 4},
    )
    after = added((lasting(one), one))
    assert (after["requests"], after["by_code"]) == (6, {"200": 4, "503": 2})
    assert (after["inflight"], after["inflight_by_upstream"], after["client_connections"]) == (
        2,
        {"10.0.0.1:80": 2},
        5,
    )
