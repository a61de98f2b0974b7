"""How long a GPU is left alone that answers that it is busy."""

from slb.jobs.busy import BusyGpus

GPU, OTHER = "10.0.0.1:80", "10.0.0.2:80"


def pause(busy: BusyGpus, now: float) -> float:
    """Seconds for which it is left alone from `now` on."""
    busy.found(GPU, now)
    seconds = 0.0
    while busy.is_left_alone(GPU, now + seconds):
        seconds += 0.5
    return seconds


def test_one_that_stays_busy_is_left_alone_twice_as_long_each_time_up_to_eight_seconds() -> None:
    busy, now, pauses = BusyGpus(), 100.0, []
    for _ in range(6):
        pauses.append(pause(busy, now))
        now += pauses[-1]
    assert pauses == [1.0, 2.0, 4.0, 8.0, 8.0, 8.0]


def test_one_that_asks_for_time_has_it_up_to_eight_seconds() -> None:
    busy = BusyGpus()
    assert busy.found(GPU, 100.0, 3.0) == 3.0
    assert busy.found(GPU, 101.0, 60.0) == 2.0  # it was on its way
    assert busy.found(GPU, 103.0, 60.0) == 8.0


def test_calls_that_were_on_their_way_together_count_once() -> None:
    busy = BusyGpus()
    for _ in range(8):
        busy.found(GPU, 100.0)
    assert busy.left_alone(100.5) == {GPU}
    assert busy.left_alone(101.0) == set()


def test_once_it_took_a_job_or_was_long_not_busy_it_begins_anew() -> None:
    busy = BusyGpus()
    for now in (100.0, 101.0, 103.0):
        busy.found(GPU, now)
    busy.took(GPU)
    busy.took(OTHER)
    assert busy.left_alone(103.0) == set()
    assert pause(busy, 104.0) == 1.0
    assert pause(busy, 114.0) == 1.0  # nine seconds after it could have had a job
    assert (pause(busy, 115.0), busy.left_alone(115.5)) == (2.0, {GPU})
