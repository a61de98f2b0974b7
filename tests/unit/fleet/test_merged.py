"""Rows of several processes as one object."""

from slb.balance.health_state import FOUND_BY_OTHERS
from slb.fleet import merged
from slb.fleet.frame import PoolRow, QueueRow
from slb.observe.families import LATENCY_BOUNDS

NAMES = {"1": "one", "2": "other"}


def test_an_upstream_has_the_worst_health_and_the_sum_of_all_else() -> None:
    shown = merged.upstream(
        {
            "1": (1, "", 2, 1, 3.0, 0.0, 0.1),
            "2": (3, "it refuses connections", 1, 2, 1.0, 0.5, 0.5),
            "3": (1, "", 0, 1, 0.0, 0.0, 0.0),
        },
        NAMES,
        {"2": 50.0, "3": 40.0},
        {"1": 0.04, "2": 0.2},
    )
    assert shown == {
        "health": "ejected",
        "ejected_by": ["other"],
        "spared": False,
        "why": "it refuses connections",
        "since": 40.0,
        "inflight": 3,
        "held": {"one": 1, "other": 2, "3": 1},
        "rate": 4.0,
        "error_rate": 0.5,
        "latency": 0.2,
        "first_byte": 0.08,
    }


def test_an_upstream_is_spared_by_one_that_would_eject_it_unless_it_is_out() -> None:
    failing = (2, "2 failures in a row", 0, 0, 0.0, 0.0, 0.0)
    rows = {"1": failing, "2": (2, "1 failure", 0, 0, 0.0, 0.0, 0.0)}
    shown = merged.upstream(rows, NAMES, {"2": 50.0}, spared_by={"2"})
    assert (shown["spared"], shown["why"], shown["since"]) == (True, "1 failure", 50.0)
    assert (
        merged.upstream({**rows, "3": (3, "stuck", 0, 0, 0.0, 0.0, 0.0)}, NAMES, spared_by={"2"})["spared"] is False
    )
    assert merged.upstream({"1": failing}, NAMES, spared_by={"2"})["spared"] is False


def test_an_upstream_of_which_nobody_tells_is_unchecked() -> None:
    shown = merged.upstream({}, NAMES)
    assert (shown["health"], shown["inflight"], shown["latency"]) == ("unchecked", 0, None)


def test_one_that_owes_an_answer_is_stuck_unless_it_is_out() -> None:
    owes, up = (2, "it is stuck: no sign of life", 3, 0, 0.0, 0.0, 0.0), (1, "", 0, 0, 0.0, 0.0, 0.0)
    shown = merged.upstream(
        {"1": owes, "2": up}, NAMES, {"1": 950.0}, is_busy=True, spared_by={"1"}, stuck_for={"1"}
    )
    assert (shown["health"], shown["why"], shown["since"]) == ("stuck", "it is stuck: no sign of life", 950.0)
    out = (3, "it refuses connections", 0, 0, 0.0, 0.0, 0.0)
    assert merged.upstream({"1": owes, "2": out}, NAMES, spared_by={"1"}, stuck_for={"1"})["health"] == "ejected"
    assert merged.upstream({"1": out}, NAMES, stuck_for={"1"})["health"] == "ejected"


def test_that_one_is_stuck_is_no_matter_of_words() -> None:
    owes = (2, "no byte for 30 s", 3, 0, 0.0, 0.0, 0.0)
    assert merged.upstream({"1": owes}, NAMES, spared_by={"1"}, stuck_for={"1"})["health"] == "stuck"
    says_so = (2, "it is stuck: no sign of life", 3, 0, 0.0, 0.0, 0.0)
    assert merged.upstream({"1": says_so}, NAMES, spared_by={"1"})["health"] == "failing"


def test_an_upstream_that_is_set_aside_is_busy_unless_it_is_out() -> None:
    failing, out = (2, "2 failures in a row", 0, 0, 0.0, 0.0, 0.0), (3, "stuck", 0, 0, 0.0, 0.0, 0.0)
    shown = merged.upstream({"1": failing}, NAMES, is_busy=True)
    assert (shown["health"], shown["why"]) == ("busy", "it says that it is full")
    shown = merged.upstream({"1": failing, "2": out}, NAMES, is_busy=True)
    assert (shown["health"], shown["why"]) == ("ejected", "stuck")


def test_the_reason_is_that_of_one_that_has_found_it_itself() -> None:
    itself, told = "/healthz: connection refused", f"/healthz: {FOUND_BY_OTHERS}"
    rows = {"1": (4, told, 9, 0, 0.0, 0.0, 0.0), "2": (4, itself, 0, 0, 0.0, 0.0, 0.0)}
    assert merged.upstream(rows, NAMES)["why"] == itself


def test_the_quantiles_of_a_route_are_those_of_all_its_requests() -> None:
    fast = tuple(9.0 if place == 0 else 0.0 for place in range(len(LATENCY_BOUNDS) + 1))
    slow = tuple(1.0 if place == 10 else 0.0 for place in range(len(LATENCY_BOUNDS) + 1))
    shown = merged.route(
        [(False, 9.0, 0.0, fast, {}), (True, 1.0, 1.0, slow, {"queue_full": 0.5}), (False, 0, 0, (), {})]
    )
    assert shown["panic"] is True
    assert (shown["rate"], shown["error_rate"], shown["reasons"]) == (10.0, 1.0, {"queue_full": 0.5})
    assert shown["p50"] <= LATENCY_BOUNDS[0] < LATENCY_BOUNDS[9] <= shown["p99"] <= LATENCY_BOUNDS[10]


def test_a_pool_has_the_worst_mode_and_what_all_hold() -> None:
    rows = [PoolRow("/p", "shared", "", 2, 4, 3), PoolRow("/p", "local", "no answer", -1, -1, 1)]
    assert merged.pools(rows) == {
        "/p": {"mode": "local", "error": "no answer", "holders": 2, "queued": 4, "inflight": 4}
    }
    assert merged.pools([PoolRow("/p", "unheard of", "", -1, -1, 0)])["/p"]["mode"] == "shared"


def test_a_queue_goes_as_fast_as_its_pool_is_served() -> None:
    rows = [
        QueueRow("/p", "/p", "high", 2, 1.0),
        QueueRow("/p", "/p", "high", 3, 4.0),
        QueueRow("/p", "/q", "", 5, 0.5),
    ]
    shown = merged.queues(rows, {"/p": 2.0})
    assert shown["/p|/p|high"] == {
        "pool": "/p",
        "route": "/p",
        "priority": "high",
        "depth": 5,
        "oldest": 4.0,
        "eta": 5.0,
    }
    assert shown["/p|/q|"]["eta"] == 5.0
    assert merged.queues(rows, {})["/p|/q|"]["eta"] is None


def test_so_many_queues_are_shown_at_most() -> None:
    rows = [QueueRow("/p", "/p", f"made-up-{number}", 1, 1.0) for number in range(2 * merged.MOST_QUEUES)]
    assert len(merged.queues(rows, {})) == merged.MOST_QUEUES
