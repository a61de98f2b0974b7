"""What a process tells of the quota router besides what it counts. The router is a list of answers."""

from slb.control.slices import Slices
from slb.errors import RedisUnavailable
from slb.fleet.more import More, MoreSources
from slb.observe.quota import QuotaCounts
from slb.quotas import Caller, Limits, ModelState


class Router:
    def __init__(self, answers: dict[str, list[Caller]]) -> None:
        self.answers = answers
        self.asked: list[str] = []

    async def callers(self, model: str, most: int) -> list[Caller]:
        self.asked.append(model)
        if model not in self.answers:
            raise RedisUnavailable("away")
        return self.answers[model][:most]


def waited_for(model: str, waiting: int) -> ModelState:
    return ModelState(model, Limits(60_000, 10), 0, 0.0, 0, 0, waiting)


def sources(models: list[ModelState], router: Router | None) -> More:
    return More(MoreSources(dict, QuotaCounts(models=models), router=router))


async def test_the_next_callers_of_a_model_are_told() -> None:
    router = Router({"a": [Caller(4_500 + number, 10, f"{number}" * 100) for number in range(9)]})
    more = sources([waited_for("a", 9), waited_for("b", 1), waited_for("c", 0)], router)
    shown = (await more.sections(Slices()))["quota"]
    assert len(shown["a"]["next"]) == 5
    assert shown["a"]["next"][0] == {"key": "0" * 64, "tokens": 10, "due": 4.5}
    assert (shown["b"]["next"], shown["c"]["next"]) == ([], [])
    assert router.asked == ["a", "b"]


async def test_of_very_many_models_only_those_with_the_most_callers_are_looked_up() -> None:
    router = Router({})
    await sources([waited_for(str(number), number) for number in range(1, 501)], router).sections(Slices())
    assert sorted(router.asked, key=int) == [str(number) for number in range(481, 501)]


async def test_nobody_is_looked_up_where_the_role_is_off() -> None:
    shown = await sources([waited_for("a", 9)], None).sections(Slices())
    assert (shown["quota"]["a"]["waiting"], shown["quota"]["a"]["next"]) == (9, [])
