"""What a lane is given of a reply: all of it, or an error of Redis."""

from typing import Any, cast

import orjson
import pytest
from redis.exceptions import InvalidResponse

from slb.control.batch import Batch
from slb.control.batch_line import BatchLine
from slb.control.lane_timing import LaneTiming
from slb.control.script_line import ScriptLine

WHOLE: dict[str, Any] = {
    "granted": [],
    "answers": [],
    "seen": {},
    "differs": False,
    "epoch": "1",
    "late": 0,
    "holders": 1,
    "pushed": 1,
    "queued": 0,
    "jobs": 0,
    "number": False,
    "last": 1,
    "now": 1,
}


class _Line:
    def __init__(self, reply: Any) -> None:
        self._reply = reply

    async def call(self, *_: object) -> Any:
        return self._reply


async def run(reply: Any) -> Any:
    line = BatchLine("/p", cast("ScriptLine", _Line(reply)), lambda: "i-1", 0)
    return await line.run(Batch(1), LaneTiming())


@pytest.mark.parametrize(
    "wrong",
    [
        {"now": "soon"},
        {"granted": [["i-1/1"]]},
        {"granted": [["i-1/1", 5]]},
        {"granted": 1},
        {"answers": ["u1"]},
        {"answers": None},
        {"seen": {"u1": None}},
        {"epoch": 5},
        {"unknown": [1]},
    ],
)
async def test_a_reply_of_another_form_is_an_error_before_anything_is_done_with_it(wrong: dict[str, Any]) -> None:
    assert await run(orjson.dumps(WHOLE).decode()) == WHOLE
    with pytest.raises(InvalidResponse):
        await run(orjson.dumps(WHOLE | wrong).decode())


@pytest.mark.parametrize("reply", [None, 1, [], "OK", "[]", '{"now":1e400,"granted":[]}'])
async def test_what_is_no_object_in_json_is_an_error(reply: Any) -> None:
    with pytest.raises(InvalidResponse):
        await run(reply)


async def test_a_name_that_is_no_text_does_not_make_the_reply_unreadable() -> None:
    reply = orjson.dumps(WHOLE | {"granted": [["i-1/1", "u?"]]}).decode().replace("?", "\udcff")
    assert (await run(reply))["granted"] == [["i-1/1", "u?"]]
