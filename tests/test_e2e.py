"""The reference topology as real processes, and the client that judges it."""

import subprocess
import sys
from collections import Counter

import pytest

from e2e.client import Counts, NotYet, resolve
from e2e.dns import NameServer, addresses_of
from e2e.topology import CannotRun, ports_of_all
from tests.support.waiting import patience

ADDRESSES = ("127.0.0.2", "127.0.0.3")


def _need_addresses() -> None:
    try:
        ports_of_all(1)
    except CannotRun as error:
        pytest.skip(str(error))


def test_a_thousand_requests_are_shared_in_exact_halves_and_none_fails_for_an_instance_that_is_killed() -> None:
    _need_addresses()
    run = subprocess.run(
        [sys.executable, "-m", "e2e"], capture_output=True, text=True, timeout=patience(100), check=False
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert "the same upstreams as dns+srv://" in run.stdout
    assert run.stdout.count("1000 requests: exact halves") == 2
    assert run.stdout.count("250") == 8
    assert run.stdout.count("500") == 8
    assert "127.0.0.3 killed under traffic: it left the answers after " in run.stdout
    assert "1000 requests: 0 failed, " in run.stdout


def test_a_number_of_requests_that_has_no_exact_halves_is_refused() -> None:
    run = subprocess.run(
        [sys.executable, "-m", "e2e", "--requests", "1001"],
        capture_output=True,
        text=True,
        timeout=patience(60),
        check=False,
    )
    assert run.returncode == 2
    assert "multiple of 4" in run.stderr


def test_the_name_server_answers_every_address_of_its_name_and_has_no_other() -> None:
    with NameServer(*addresses_of("slb.test", ADDRESSES)) as names:
        assert resolve("slb.test", names.address, 0) == list(ADDRESSES)
        with pytest.raises(NotYet, match="does not exist"):
            resolve("other.test", names.address, 0)


@pytest.mark.parametrize(
    ("pairs", "failures"),
    [
        ({("i1", "a"): 3, ("i1", "b"): 1, ("i2", "a"): 2, ("i2", "b"): 2}, {}),
        ({("i1", "a"): 4, ("i2", "a"): 4}, {}),
        ({("i1", "a"): 2, ("i1", "b"): 2, ("i2", "a"): 2, ("i2", "b"): 1}, {"i2: status 502": 1}),
    ],
    ids=["uneven", "one upstream missing", "one request failed"],
)
def test_counts_that_are_not_exact_are_not_called_exact(
    pairs: dict[tuple[str, str], int], failures: dict[str, int]
) -> None:
    assert not Counts(8, Counter(pairs), Counter(failures)).exact(2, 2)


def test_equal_shares_without_a_failure_are_exact() -> None:
    assert Counts(8, Counter({(i, u): 2 for i in ("i1", "i2") for u in ("a", "b")})).exact(2, 2)
