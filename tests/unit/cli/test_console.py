"""What is printed for a person: whole on any terminal, and in a pipe."""

import io

import pytest
from rich.console import Console

from slb.cli.console import make_table, moment, show, shown

MEMBER = "https://a-machine-with-a-long-name.of-some-cluster.internal.example.test:8443"
PATH = "/a/path/that/goes/on/for/long/and/longer/than/eighty/columns/take/beside/an/upstream"


def test_in_a_pipe_a_table_is_as_wide_as_what_it_shows(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    table = make_table("route", "upstream", "slots", right=("slots",))
    table.add_row(PATH, MEMBER, "1")
    show(table)
    row = capsys.readouterr().out.splitlines()[3]
    assert [cell.strip() for cell in row.split("\u2502")[1:-1]] == [PATH, MEMBER, "1"]


@pytest.mark.parametrize("width", [30, 80, 120])
def test_on_a_terminal_nothing_is_cut(width: int) -> None:
    table = make_table("route", "upstream")
    table.add_row(PATH, MEMBER)
    out = io.StringIO()
    Console(file=out, force_terminal=True, width=width, color_system=None).print(table)
    rows = [line.split("\u2502")[1:-1] for line in out.getvalue().splitlines() if "\u2502" in line]
    assert ["".join(part.strip() for part in column) for column in zip(*rows, strict=True)] == [PATH, MEMBER]


def test_what_is_not_set_is_called_none() -> None:
    nothing: list[object] = [None, "", {}, []]
    assert {shown(value) for value in nothing} == {"none"}
    assert (shown(0), shown(False), shown("/gpus")) == ("0", "False", "/gpus")


def test_a_moment_is_a_date_and_a_time() -> None:
    assert moment(0) == "1970-01-01 00:00:00+00:00"
    assert moment(None) == moment("soon") == ""
