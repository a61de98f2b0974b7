"""What a name in Redis stands for."""

import pytest

from slb.control import keys

A = "10.0.0.1:80"


def test_an_entry_names_its_route_and_its_member() -> None:
    assert keys.membership_of(keys.membership("/a", A)) == ("/a", A)


@pytest.mark.parametrize(
    "entry", [f"slb:route:/a {A}", f"slb_a/../b {A}", "slb_a no-member", "slb_a", f" {A}", ""], ids=repr
)
def test_an_entry_of_another_form_names_none(entry: str) -> None:
    assert keys.membership_of(entry) is None
