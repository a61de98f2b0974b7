"""Medians, ratios, and what the table shows of them."""

import pytest

from bench.comparison import case_section, goals
from bench.measure import CASES, LoadReport, Sample
from bench.peers import ENVOY, NGINX, SLB, Peer

DISTINCT = next(case for case in CASES if case.name == "distinct")


def sample(peer: str, cpu_seconds: float, **errors: int) -> Sample:
    """A round of 100,000 requests in 5 s, so that one second of CPU is 10 µs a request."""
    return Sample(peer, "distinct", LoadReport(100_000, 5.0, 1000, 2000, errors), cpu_seconds, 20.0)


def row(samples: list[Sample], peer: Peer = SLB) -> list[str]:
    section = case_section(DISTINCT, [SLB, ENVOY], samples)
    (found,) = (list(row) for row in section.rows if row[0] == peer.name)
    return found


def test_a_row_has_the_medians_of_the_rounds_and_the_range_of_cpu() -> None:
    rounds = [sample("slb", cpu) for cpu in (4.0, 9.0, 5.0)]
    assert row(rounds) == ["slb", "20,000", "1", "2", "50", "40-90", "100%", "20", "1.00x", "1.00x", "0"]


def test_a_failed_round_counts_in_no_median_and_is_named() -> None:
    rounds = [sample("slb", 4.0), Sample("slb", "distinct", failure="ended with 1:\nout of memory\n")]
    assert row(rounds)[4] == "40"
    assert case_section(DISTINCT, [SLB], rounds).notes == ["slb: failed in 1 of 2 rounds: out of memory"]


def test_both_ratios_are_shown_and_none_without_slb() -> None:
    envoy = sample("envoy", 10.0)
    assert row([sample("slb", 4.0), envoy], ENVOY)[8:10] == ["2.50x", "0.40x"]
    assert row([envoy], ENVOY)[8:10] == ["-", "-"]


def test_errors_are_added_up_over_the_rounds_and_named_by_kind() -> None:
    rounds = [sample("slb", 1, read=2), sample("slb", 1, read=1, status=1500)]
    assert row(rounds)[-1] == "1,503"
    assert case_section(DISTINCT, [SLB], rounds).notes == ["slb: errors: socket read 3, neither 2xx nor 3xx 1,500"]


def test_a_peer_that_is_not_installed_is_named_with_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.peers.find_program", lambda name: None)
    assert case_section(DISTINCT, [NGINX], []).notes == ["nginx: not installed: apt-get install nginx"]
    assert set(row([])[1:]) == {"-"}


def test_goals_are_those_that_have_figures() -> None:
    met, missed = goals([sample("slb", 4.6), sample("envoy", 10.0), sample("nginx", 1.0)])
    assert (met.what, met.value, met.met, missed.met) == ("distinct: of envoy's", 0.46, True, False)
    assert goals([sample("envoy", 10.0)]) == []
