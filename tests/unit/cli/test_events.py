"""`slb events`: in which order entries are printed, and when it ends."""

from typing import Any

import orjson
import pytest

from tests.unit.cli.conftest import Server, Slb


def entry(number: int, time: float) -> dict[str, Any]:
    texts = {"instance": "i", "name": "one", "what": "ejected", "detail": "", "by": ""}
    return {"id": f"{number}-0", "time": time, "subject": f"10.0.0.{number}:80", **texts}


@pytest.mark.parametrize("words", [(), ("--no-follow",), ("--since", "1h")])
def test_it_prints_what_there_is_in_order_of_time_and_ends(
    slb: Slb, server: Server, words: tuple[str, ...]
) -> None:
    server.answer = {"changes": [entry(1, 30.0), entry(2, 20.0), entry(3, 40.0)]}  # 2: noted while Redis was away
    code, out, err = slb("events", *words)
    assert (code, err, len(server.asked)) == (0, "", 1)
    assert [line.split()[3] for line in out.splitlines()] == ["10.0.0.2:80", "10.0.0.1:80", "10.0.0.3:80"]


@pytest.mark.parametrize("flag", ["-f", "--follow"])
def test_followed_it_asks_for_what_came_behind_the_last_one_of_the_log_until_it_is_stopped(
    slb: Slb, server: Server, monkeypatch: pytest.MonkeyPatch, flag: str
) -> None:
    server.answer = {"changes": [entry(1, 30.0), entry(2, 20.0)]}

    def pause(_: float) -> None:
        if len(server.asked) == 3:
            raise KeyboardInterrupt
        server.answer = {"changes": [entry(len(server.asked) + 2, 50.0)]}

    monkeypatch.setattr("slb.cli.status.time.sleep", pause)
    code, out, _ = slb("events", flag, "--json")
    assert [orjson.loads(line)["id"] for line in out.splitlines()] == ["2-0", "1-0", "3-0", "4-0"]
    assert [each.partition("since=")[2] for each in server.asked] == ["", "2-0", "3-0"]
    assert code == 0
