"""What is refused before anything is measured, and the names that options take."""

import pytest
import typer

from bench.command import chosen, instance_counts


def test_names_are_taken_in_the_order_they_are_known() -> None:
    assert chosen("--only", "b, a", ["a", "b", "c"]) == ["a", "b"]
    assert chosen("--only", "", "ab") == chosen("--only", "all", "ab") == ["a", "b"]


def test_an_unknown_name_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit):
        chosen("--only", "envoy,evnoy", ["envoy", "slb"])
    assert "evnoy: known are envoy, slb" in capsys.readouterr().err


def test_numbers_of_instances_ascend() -> None:
    assert instance_counts("10,1, 2,10") == [1, 2, 10]


@pytest.mark.parametrize("text", ["", "0", "1,,2", "two"])
def test_what_is_no_number_of_instances_is_refused(text: str) -> None:
    with pytest.raises(typer.Exit):
        instance_counts(text)
