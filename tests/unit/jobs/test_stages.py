"""At which models a job may go on."""

from slb.jobs.stages import Stage, next_after, stages_of

FALLBACKS = ("medium", "small")


def test_without_fallbacks_a_model_takes_its_own_jobs_where_it_has_a_gpu() -> None:
    assert stages_of((), ("",), lambda _: True) == [Stage("", ("",))]
    assert stages_of((), ("",), lambda _: False) == []


def test_each_model_takes_what_has_gone_on_at_it() -> None:
    stages = [Stage("", ("",)), Stage("medium", ("medium",)), Stage("small", ("small",))]
    assert stages_of(FALLBACKS, ("", "small"), lambda _: True) == stages


def test_what_waits_where_there_is_no_gpu_goes_on_at_the_next_model_that_has_one() -> None:
    assert stages_of(FALLBACKS, ("",), {"small"}.__contains__) == [Stage("small", ("", "medium", "small"))]
    found = stages_of(FALLBACKS, ("",), {"", "small"}.__contains__)
    assert found == [Stage("", ("",)), Stage("small", ("medium", "small"))]
    assert stages_of(FALLBACKS, ("",), {""}.__contains__) == [Stage("", ("",))]


def test_what_waits_at_a_model_that_is_no_fallback_any_more_begins_at_the_first() -> None:
    stages = stages_of(("small",), ("", "large", "small"), lambda _: True)
    assert stages == [Stage("", ("large", "")), Stage("small", ("small",))]


def test_a_job_goes_on_at_the_next_model_that_has_a_gpu_and_at_none_behind_the_last() -> None:
    for on, has, following in (
        ("", {"medium", "small"}, "medium"),
        ("", {"small"}, "small"),
        ("medium", {"medium", "small"}, "small"),
        ("small", {"medium", "small"}, ""),
        ("", {""}, ""),
        ("gone", {"medium", "small"}, ""),
    ):
        assert next_after(on, FALLBACKS, has.__contains__) == following
    assert next_after("", (), lambda _: True) == ""
