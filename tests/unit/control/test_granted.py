"""The message with grants, and what is none."""

import orjson
import pytest

from slb.control.granted import MOST_GRANTS, Granted, read_granted

MESSAGE = {"pool": "/p", "at": 7, "epoch": "e 1", "grants": [["a-1/1", "u0"], ["a-1/2", "u1"]]}


def test_a_message_is_read() -> None:
    expected = Granted("/p", 7, "e 1", (("a-1/1", "u0"), ("a-1/2", "u1")))
    assert read_granted(orjson.dumps(MESSAGE).decode()) == expected


FAULTS: list[tuple[str, object]] = [
    ("pool", None),
    ("at", "7"),
    ("at", 7.5),
    ("epoch", 1),
    ("grants", {}),
    ("grants", [["a-1/1"]]),
    ("grants", [["a-1/1", 1]]),
    ("grants", ["ab"]),
    ("grants", [["a-1/1", "u0"]] * (MOST_GRANTS + 1)),
    ("more", "x" * (1 << 16)),
]


@pytest.mark.parametrize(
    "text",
    [
        *("", "/p", "{", "[]", "null", '"/p"', "{}", "1e999", "\ud800"),
        *(orjson.dumps({**MESSAGE, name: value}).decode() for name, value in FAULTS),
    ],
)
def test_any_other_text_is_none(text: str) -> None:
    assert read_granted(text) is None
