"""Entries that are none of slb's: counted as they are now, logged once."""

from structlog.testing import capture_logs

from slb.control.skipped import Found, Skipped
from slb.observe.metrics import Metrics

MOST_LOGGED = 10_000
MOST_KEYS = 10_000


def test_what_a_full_sync_finds_is_all_there_is() -> None:
    metrics = Metrics()
    skipped, found = Skipped(metrics), Found()
    for entry in ("x", "y"):
        skipped.note(found, "member", "slb_a", entry)
    skipped.note(found, "type", "slb_b")
    assert metrics.redis.skipped == {}
    skipped.replace(found)
    assert metrics.redis.skipped == {"member": 2, "type": 1}
    skipped.replace(Found())
    assert metrics.redis.skipped == {"member": 0, "type": 0}


def test_of_keys_that_are_read_again_only_what_is_found_now_counts() -> None:
    metrics = Metrics()
    skipped, found = Skipped(metrics), Found()
    skipped.note(found, "member", "slb_a", "x")
    skipped.note(found, "member", "slb_b", "x")
    skipped.replace(found)
    again = Found()
    skipped.note(again, "type", "slb_a")
    skipped.update({"slb_a", "slb_c"}, again)
    assert metrics.redis.skipped == {"member": 1, "type": 1}
    skipped.update({"slb_a", "slb_b"}, Found())
    assert metrics.redis.skipped == {"member": 0, "type": 0}


def test_an_entry_is_logged_once_and_not_at_full_length() -> None:
    skipped = Skipped(Metrics())
    with capture_logs() as logs:
        for _ in range(2):
            skipped.note(Found(), "large", "slb_a", "\n" + "x" * 300, size=7)
        skipped.note(Found(), "large", "slb_b")
        skipped.note(Found(), "type", "slb_b")
    assert [(line["event"], line["kind"]) for line in logs] == [
        ("redis_entry_skipped", "large"),
        ("redis_entry_skipped", "large"),
        ("redis_entry_skipped", "type"),
    ]
    assert (logs[0]["key"], logs[0]["size"], logs[0]["log_level"]) == ("'slb_a'", 7, "warning")
    assert logs[0]["entry"].startswith("'\\nxxx")
    assert len(logs[0]["entry"]) == 200


def test_of_very_many_entries_the_first_are_logged_and_all_are_counted() -> None:
    metrics = Metrics()
    skipped, found = Skipped(metrics), Found()
    with capture_logs() as logs:
        for number in range(MOST_LOGGED + 1):
            skipped.note(found, "member", "slb_a", str(number))
    assert len(logs) == MOST_LOGGED
    skipped.replace(found)
    assert metrics.redis.skipped == {"member": MOST_LOGGED + 1}


def test_of_very_many_keys_the_first_are_named_and_all_are_counted() -> None:
    metrics = Metrics()
    skipped, found = Skipped(metrics), Found()
    with capture_logs():
        for number in range(MOST_KEYS + 1):
            skipped.note(found, "type", f"slb_{number}")
        skipped.note(found, "type", "slb_0")
    skipped.replace(found)
    assert metrics.redis.skipped == {"type": MOST_KEYS + 2}
    skipped.update({"slb_0", f"slb_{MOST_KEYS}"}, Found())
    assert metrics.redis.skipped == {"type": MOST_KEYS}
