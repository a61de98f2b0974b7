"""How jobs wait for slots, by the settings of their route."""

from slb.balance.asking import Turn
from slb.jobs.slots import turn_of
from slb.model import RouteSettings


def test_jobs_wait_in_a_class_of_their_own_that_weighs_less_than_any_request() -> None:
    queue = {"when_full": "queue", "queue_limit": 7}
    for priorities, weight in (({}, 1 / 8), ({"critical": 8, "batch": 1}, 1 / 8), ({"jobs": 3, "batch": 1}, 3)):
        settings = RouteSettings.model_validate({**queue, "priorities": priorities})
        assert turn_of(settings) == Turn("jobs", weight, 7)


def test_where_nothing_waits_jobs_do_not_either() -> None:
    assert turn_of(RouteSettings(when_full="shed")) is None
