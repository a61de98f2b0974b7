"""What a name in Redis stands for."""

import pytest

from slb.control import keys
from slb.model import HealthCheck

A = "10.0.0.1:80"


def test_an_entry_names_its_route_and_its_member() -> None:
    assert keys.membership_of(keys.membership("/a", A)) == ("/a", A)


@pytest.mark.parametrize(
    "entry", [f"slb:route:/a {A}", f"slb_a/../b {A}", "slb_a no-member", "slb_a", f" {A}", ""], ids=repr
)
def test_an_entry_of_another_form_names_none(entry: str) -> None:
    assert keys.membership_of(entry) is None


def test_a_check_that_asks_for_no_more_than_a_path_has_the_key_that_every_version_gives_it() -> None:
    check = HealthCheck("/healthz", 5.0, 2, 3, 2.0)
    assert keys.health_key(A, check) == "slb:{health}:5s:2:3:2s:10.0.0.1:80/healthz"


def test_a_check_has_another_key_for_whatever_it_asks_for() -> None:
    plain = HealthCheck("/healthz", 5.0, 2, 3, 2.0)
    more = [plain._replace(body="a"), plain._replace(json="a=b"), plain._replace(body="a", json="a=b")]
    more += [plain._replace(body="a=b"), plain._replace(post="/x {}"), plain._replace(post='/x {"a": 1}')]
    found = [keys.health_key(A, each) for each in (plain, *more)]
    assert len(set(found)) == len(found)
    assert all(" " not in each for each in found), "it stands between blanks in a message"
    assert keys.health_key(A, plain._replace(json="a=b")) == found[2], "of all processes the same"
