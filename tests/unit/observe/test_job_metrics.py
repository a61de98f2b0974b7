"""What Prometheus is shown of jobs."""

from prometheus_client import generate_latest

from slb.job import Claimed, ModelStats
from slb.observe.exposition import Shown
from slb.observe.jobs import JobCounts, job_families

NOW = 1_000.0


def counts_of(since: float = 0.0, **counts: int) -> JobCounts:
    counted = JobCounts(lambda: NOW)
    counted.is_on = True
    counted.models = {"flux": ModelStats(0, 2, 0, 1, 0, 0, 0, "one" if since else "", since, counts)}
    return counted


def shown(counts: JobCounts) -> list[str]:
    return generate_latest(Shown(job_families(counts))).decode().splitlines()


def claimed(token: str, waited: float) -> Claimed:
    return Claimed("flux", "one", token, int(token.partition(".")[0]), 0, "", "", "{}", "", waited)


def test_nothing_is_shown_where_the_role_is_off() -> None:
    assert shown(JobCounts()) == []


def test_the_oldest_that_waits_is_as_old_as_it_is_at_the_scrape() -> None:
    assert 'slb_job_oldest_seconds{model="flux"} 30.0' in shown(counts_of(since=NOW - 30))
    assert 'slb_job_oldest_seconds{model="flux"} 0.0' in shown(counts_of())  # none waits
    assert 'slb_job_oldest_seconds{model="flux"} 0.0' in shown(counts_of(since=NOW + 5))  # Redis's clock is ahead


def test_outcomes_are_those_of_all_instances_and_are_there_from_the_beginning() -> None:
    lines = shown(counts_of(completed=7, dead_lettered=2, busy=9))
    named = [each for each in lines if each.startswith("slb_job_outcomes_total{")]
    assert named == [
        'slb_job_outcomes_total{model="flux",outcome="cancelled"} 0.0',
        'slb_job_outcomes_total{model="flux",outcome="completed"} 7.0',
        'slb_job_outcomes_total{model="flux",outcome="dead_lettered"} 2.0',
        'slb_job_outcomes_total{model="flux",outcome="failed"} 0.0',
    ]


def test_a_job_waits_in_the_queue_once_however_often_it_is_tried() -> None:
    counts = counts_of()
    counts.began(claimed("1.17", 4.0))
    counts.began(claimed("2.17", 9.0))
    lines = shown(counts)
    assert 'slb_job_queue_seconds_count{model="flux"} 1.0' in lines
    assert 'slb_job_queue_seconds_sum{model="flux"} 4.0' in lines
    assert 'slb_job_queue_seconds_bucket{le="2.5",model="flux"} 0.0' in lines
    assert 'slb_job_queue_seconds_bucket{le="5.0",model="flux"} 1.0' in lines


def test_attempts_have_a_time_each_and_an_outcome() -> None:
    counts = counts_of()
    counts.ended("flux", "complete", 2.0)
    counts.ended("flux", "dropped", 1.0)
    lines = shown(counts)
    assert 'slb_job_attempts_total{model="flux",outcome="dropped"} 1.0' in lines
    assert 'slb_job_attempt_seconds_count{model="flux"} 2.0' in lines
    assert 'slb_job_attempt_seconds_sum{model="flux"} 3.0' in lines


def test_a_callback_takes_until_it_is_delivered() -> None:
    counts = counts_of()
    counts.called_back("flux", "failed", 1.0)
    counts.called_back("flux", "delivered", 6.0)
    counts.called_back("flux", "delivered", -0.1)  # Redis's clock is ahead
    lines = shown(counts)
    assert 'slb_job_callbacks_total{model="flux",outcome="failed"} 1.0' in lines
    assert 'slb_job_callback_seconds_count{model="flux"} 2.0' in lines
    assert 'slb_job_callback_seconds_sum{model="flux"} 6.0' in lines
