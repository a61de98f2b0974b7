"""Medians, ratios, and what the table says of them."""

from rich.console import Console

from bench.cases import CASES
from bench.results import Sample, as_json, ratio, summarise
from bench.table import case_table, disturbance, goal_lines, notes

PEERS = ["slb", "envoy", "traefik"]
DISTINCT = next(case for case in CASES if case.name == "distinct")


def sample(peer: str, number: int, cpu_seconds: float, **more: object) -> Sample:
    """A round of 100,000 requests in 5 s, so that one second of CPU is 10 µs a request."""
    return Sample(peer, "distinct", number, 100_000, 5.0, 1000, 2000, cpu_seconds, 20.0, **more)  # type: ignore[arg-type]


def shown(samples: list[Sample], names: list[str]) -> str:
    console = Console(width=80)
    with console.capture() as capture:
        console.print(case_table(DISTINCT, samples, names))
    return capture.get()


def test_a_summary_is_the_median_of_the_rounds_with_its_range() -> None:
    summary = summarise([sample("slb", 1, 4.0), sample("slb", 2, 9.0), sample("slb", 3, 5.0)], "slb", "distinct")
    assert summary is not None
    assert (summary.cpu_us, summary.cpu_us_least, summary.cpu_us_most) == (50, 40, 90)
    assert (summary.rounds, summary.requests_per_second, summary.busy) == (3, 20_000, 1.0)


def test_errors_are_added_up_over_the_rounds_by_kind() -> None:
    rounds = [sample("slb", 1, 1, errors={"read": 2}), sample("slb", 2, 1, errors={"read": 1, "status": 5})]
    summary = summarise(rounds, "slb", "distinct")
    assert summary is not None
    assert summary.errors == {"read": 3, "status": 5}


def test_a_failed_round_counts_in_no_median_and_is_told() -> None:
    rounds = [sample("slb", 1, 4.0), Sample("slb", "distinct", 2, failure="ended with 1:\nout of memory\n")]
    summary = summarise(rounds, "slb", "distinct")
    assert summary is not None
    assert (summary.rounds, summary.cpu_us) == (1, 40)
    assert notes(DISTINCT, rounds, {}, ["slb"]) == ["slb: failed in 1 of 2 rounds: out of memory"]


def test_nothing_measured_is_no_summary() -> None:
    assert summarise([sample("slb", 1, 4.0)], "nginx", "distinct") is None


def test_the_ratio_is_what_slb_needs_in_units_of_the_peer() -> None:
    rounds = [sample("slb", 1, 4.0), sample("envoy", 1, 10.0)]
    envoy = summarise(rounds, "envoy", "distinct")
    assert envoy is not None
    assert ratio(summarise(rounds, "slb", "distinct"), envoy) == 0.4


def test_the_table_shows_both_ratios_in_eighty_columns() -> None:
    text = shown([sample("slb", 1, 4.0), sample("envoy", 1, 10.0), sample("traefik", 1, 199)], PEERS)
    assert "2.50x" in text
    assert "0.40x" in text
    assert "…" not in text


def test_without_slb_there_is_a_row_and_no_ratio() -> None:
    text = shown([sample("envoy", 1, 10.0)], ["slb", "envoy"])
    assert "x" not in text.splitlines()[-2]
    assert "20,000" in text


def test_a_peer_that_is_not_installed_is_named_with_how_to_install_it() -> None:
    told = notes(DISTINCT, [], {"haproxy": "apt-get install haproxy"}, ["haproxy", "nginx"])
    assert told == ["haproxy: not installed: apt-get install haproxy", "nginx: not measured"]


def test_errors_are_named_under_the_table() -> None:
    told = notes(DISTINCT, [sample("slb", 1, 1, errors={"status": 1500})], {}, ["slb"])
    assert told == ["slb: errors: neither 2xx nor 3xx 1,500"]


def test_a_goal_is_met_or_missed_in_words() -> None:
    rounds = [sample("slb", 1, 4.6), sample("envoy", 1, 10.0), sample("nginx", 1, 1.0)]
    met = dict(goal_lines(rounds))
    assert list(met.values()) == [True, False]
    assert next(iter(met)).startswith("distinct: slb's CPU per request is 0.46 of envoy's")


def test_a_goal_without_figures_is_not_spoken_of() -> None:
    assert goal_lines([sample("envoy", 1, 10.0)]) == []


def test_strangers_on_the_core_are_warned_of() -> None:
    assert disturbance([sample("slb", 1, 1, others_cpu_seconds=0.05)]) is None
    warning = disturbance([sample("slb", 1, 1, others_cpu_seconds=0.5)])
    assert warning is not None
    assert "other processes took 10% of the proxy's core" in warning
    assert "hypervisor" not in warning


def test_time_withheld_by_the_hypervisor_is_warned_of() -> None:
    warning = disturbance([sample("slb", 1, 1, stolen_seconds=1.0), sample("slb", 2, 1, stolen_seconds=0.5)])
    assert warning is not None
    assert "the hypervisor withheld 15% of the proxy's core (20% in the worst run)" in warning


def test_json_keeps_every_round_with_what_follows_from_it() -> None:
    kept = as_json([sample("slb", 1, 4.0), Sample("slb", "distinct", 2, failure="gone")])
    assert (kept[0]["cpu_us_per_request"], kept[0]["requests_per_second"]) == (40.0, 20_000.0)
    assert kept[1]["failure"] == "gone"
    assert "cpu_us_per_request" not in kept[1]
