"""One instance's way to the quota router's state in Redis. `lua/quota.lua` lists the asks and their replies."""

from collections.abc import Callable
from typing import Any

import orjson

from slb.control import keys
from slb.control.ask_lane import Answer, Ask, AskLane, AskTiming
from slb.control.connection import Connection
from slb.control.resp import Word
from slb.control.scripts import quota_source

_FAILED = "failed"


class QuotaLane(AskLane):
    """`rules`: what each batch has besides its asks. `on_reply` gets whether Redis has lost its data since the
    reply before, and how many tasks were reclaimed."""

    events = ("quota_alone", "quota_shared", "quota_script_failed", "quota_mended")
    owner = "the quota router's"
    mend = ("quota_mend", "zhhh-----zz--")

    def __init__(
        self,
        connection: Connection,
        rules: dict[str, int],
        on_reply: Callable[[bool, int], None] = lambda is_lost, reclaimed: None,
        timing: AskTiming | None = None,
    ) -> None:
        names = keys.quota_keys()
        super().__init__(connection, quota_source(), names, timing)
        self._rules = rules
        self._on_reply = on_reply
        self._since = ""

    def _args(self, asks: list[Ask]) -> list[Word]:
        return [orjson.dumps({**self._rules, "asks": asks})]

    def _answers(self, reply: Any) -> list[Answer]:
        _, since, reclaimed, answers = reply
        if (type(since), type(reclaimed)) != (str, int):
            raise TypeError("no reply of the quota router's script")
        is_lost = self._since not in ("", since)
        self._since = since
        self._on_reply(is_lost, reclaimed)
        return list(answers)

    def _fault_in(self, answer: Answer) -> str | None:
        return answer[1] if answer[:1] == [_FAILED] else None
