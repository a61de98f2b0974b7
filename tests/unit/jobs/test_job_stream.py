"""A stream of events: what is told, in which order, and how much of it waits."""

from types import SimpleNamespace
from typing import Any

from structlog.testing import capture_logs

from slb.job import JobShown, JobState
from slb.jobs.events import Stream, _Followed


def job(state: JobState, moves: int, id_: str = "one", result: str = "") -> JobShown:
    return JobShown(id_, "flux", state, "normal", 0, 0, 0.0, 0.0, "", "", "", 0, "", -1, 1.0, -1, "", result, moves)


async def told(stream: Stream) -> list[str]:
    """Names and ids of all that waits."""
    found = []
    while (event := await stream.next(0.0)) is not None:
        found.append(f"{event.name} {event.id}".strip())
    return found


LIFE: list[JobState] = [
    "queued",
    "processing",
    "retrying",
    "queued",
    "processing",
    "dead_lettered",
    "queued",
    "failed",
]


async def test_a_jobs_whole_life_is_told_in_order() -> None:
    stream = Stream("flux", "")
    for moves, state in enumerate(LIFE):
        stream.tell(job(state, moves))
    assert await told(stream) == [f"{state} {moves}" for moves, state in enumerate(LIFE)]


async def test_what_is_not_newer_than_what_was_told_is_not_told_again() -> None:
    stream = Stream("flux", "one")
    stream.tell(job("processing", 4))
    for moves, state in enumerate(LIFE[:5]):
        stream.tell(job(state, moves))
    assert await told(stream) == ["processing 4"]
    assert not stream.has_ended


async def test_the_stream_of_one_job_ends_with_it_and_one_of_a_model_does_not() -> None:
    one, all_ = Stream("flux", "one"), Stream("flux", "")
    for stream in (one, all_):
        stream.tell(job("cancelled", 1))
        stream.tell(job("queued", 0, "two"))
    assert await told(one) == ["cancelled 1"]
    assert one.has_ended
    assert await told(all_) == ["cancelled 1", "queued 0"]
    assert not all_.has_ended


async def test_an_end_that_was_told_is_not_told_again_when_it_is_read() -> None:
    stream = Stream("flux", "")
    stream.tell(job("processing", 1))
    stream.tell(job("completed", 2))
    stream.tell(job("completed", 2), was_read=True)
    assert await told(stream) == ["processing 1", "completed 2"]


async def test_of_a_model_it_is_told_that_moves_may_have_been_missed() -> None:
    one, all_ = Stream("flux", "one"), Stream("flux", "")
    for stream in (one, all_):
        stream.tell_missed()
    assert (await told(one), await told(all_)) == ([], ["missed"])


async def test_one_who_does_not_read_is_dropped_and_nothing_waits_for_it_any_more() -> None:
    stream, drops = Stream("flux", ""), 0

    def on_drop() -> None:
        nonlocal drops
        drops += 1

    stream.on_drop = on_drop
    with capture_logs() as logs:
        for number in range(1000):
            stream.tell(job("completed", 1, f"job-{number}", result="x" * 8000))
    assert drops == 1
    assert [(each["event"], each["model"], each["job"]) for each in logs] == [("job_events_dropped", "flux", None)]
    assert stream.has_ended
    assert await told(stream) == []


async def test_of_jobs_that_have_not_ended_a_bounded_number_is_known() -> None:
    stream = Stream("flux", "")
    for number in range(1500):
        stream.tell(job("queued", 0, str(number)))
        await stream.next(0.0)
    assert stream.open_jobs == [str(number) for number in range(500, 1500)]


async def test_a_job_that_is_read_again_is_told_and_one_that_is_gone_ends_its_stream() -> None:
    async def show(id_: str, most: int) -> JobShown | None:
        return {"one": job("processing", 1), "three": job("processing", 3, "three")}.get(id_)

    lane: Any = SimpleNamespace(show=show)
    followed, whole = _Followed(lane), Stream("flux", "")
    one, gone = Stream("flux", "one"), Stream("flux", "two")
    whole.tell(job("queued", 0, "three"))
    followed.streams = {"one": {one}, "two": {gone}, "": {whole}}
    await followed.read()
    assert (await told(one), one.has_ended) == (["processing 1"], False)
    assert (await told(gone), gone.has_ended) == ([], True)
    assert (await told(whole), whole.has_ended) == (["queued 0", "processing 3"], False)
