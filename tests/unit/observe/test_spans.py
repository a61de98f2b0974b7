"""The spans of a request that ended, as values."""

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as some

from slb.observe.spans import LONGEST, export_body, spans_of
from slb.observe.trace import Attempt, Ended, Place, Rate, is_sampled, place_at_start, place_below, span_id
from tests.support.collector import read, tree

TRACE = b"0af7651916cd43dd8448eb211c80319c"
FIRST = Attempt("a:80", "http", "a", 80, 1.0, 0.5, 3, "high", 0.0, 1.5, 0.0, 2.0, 0, "upstream_reset")
SECOND = Attempt("https://b:443", "https", "b", 443, 2.0, 1.5, 3, "high", 3.0, 3.5, 4.0, 5.0, 200, "")


def request(**changes: Any) -> Ended:
    values: dict[str, Any] = {
        "place": Place(TRACE, b"", 100, 1),
        "started": 1.0,
        "ended": 5.0,
        "method": "GET",
        "path": "/p/x",
        "target": "/x",
        "scheme": "https",
        "host": "example.test:8443",
        "minor": 1,
        "route": "/p",
        "status": 200,
        "reason": "",
        "detail": "",
        "request_id": "r",
        "client": "10.0.0.1",
        "peer": "10.0.0.2",
        "bytes_in": 1,
        "bytes_out": 2,
        "attempts": (FIRST, SECOND),
    }
    return Ended(**{**values, **changes})


def values(span: dict[str, Any]) -> dict[str, Any]:
    return {each["key"]: next(iter(each["value"].values())) for each in span["attributes"]}


def spans(ended: Ended, epoch: int = 0) -> list[Any]:
    return [orjson.loads(each) for each in spans_of(ended, epoch)]


def test_every_part_of_a_request_that_waited_twice_and_went_to_two_upstreams() -> None:
    found = spans(request(), epoch=10**18)
    assert [(span["name"], span["startTimeUnixNano"][9:], span["endTimeUnixNano"][9:]) for span in found] == [
        ("GET /p", "1000000000", "5000000000"),
        ("queue", "1000000000", "1500000000"),
        ("GET", "1500000000", "2000000000"),
        ("first byte", "1500000000", "2000000000"),
        ("queue", "2000000000", "3000000000"),
        ("GET", "3000000000", "5000000000"),
        ("connect", "3000000000", "3500000000"),
        ("first byte", "3500000000", "4000000000"),
        ("body", "4000000000", "5000000000"),
    ]
    assert len({span["spanId"] for span in found}) == len(found)
    assert [values(span).get("slb.queue.class") for span in found if span["name"] == "queue"] == ["high", "high"]
    assert values(found[5])["url.full"] == "https://b:443/x"
    assert (values(found[0])["server.address"], values(found[0])["server.port"]) == ("example.test", "8443")
    assert "status" not in found[0]


@pytest.mark.parametrize(
    ("status", "reason", "failed"),
    [(200, "", False), (404, "", False), (500, "", True), (503, "queue_full", True), (499, "client_gone", False)],
)
def test_only_what_the_server_failed_is_an_error_of_its_span(status: int, reason: str, failed: bool) -> None:
    span = spans(request(status=status, reason=reason))[0]
    assert ("status" in span) == failed
    assert values(span).get("error.type") == (reason or ("500" if failed else None))


def test_a_reply_that_broke_off_is_an_error_whatever_its_status_was() -> None:
    assert "status" in spans(request(status=200, reason="upstream_reset"))[0]


def test_a_method_that_is_made_up_makes_no_name() -> None:
    span = spans(request(method="XYZ"))[0]
    assert span["name"] == "HTTP /p"
    assert (values(span)["http.request.method"], values(span)["http.request.method_original"]) == ("_OTHER", "XYZ")


def test_what_a_client_may_make_long_is_cut_off() -> None:
    span = spans(request(path="/" + "x" * 5000))[0]
    assert len(values(span)["url.path"]) == LONGEST


def test_what_was_sent_on_a_connection_that_had_closed_is_not_taken_for_the_second_time() -> None:
    """`sent_at` is still that of the first one while the second is made."""
    replaced = SECOND._replace(sent_at=2.5, connecting_at=3.0, first_byte_at=0.0, position=None)
    assert tree_of(request(attempts=(replaced,))) == ["GET /p", ["GET", ["connect", []]]]


def test_what_is_not_unicode_is_sent_all_the_same() -> None:
    assert spans(request(status=502, detail="\udcff gone"))[0]["status"]["message"] == "? gone"


def tree_of(ended: Ended) -> list[Any]:
    _, body = export_body([ended], 10**18, {}, ("slb", "1"))
    return tree(read(body)[1])


texts = some.text(max_size=30)
times = some.floats(0, 1e6)
attempts = some.builds(
    Attempt,
    *(texts, some.sampled_from(["http", "https"]), texts, some.integers(0, 65535), times, times),
    *(some.none() | some.integers(0, 1000), texts, times, times, times, times, some.integers(0, 599), texts),
)


@given(some.lists(attempts, max_size=11), texts, texts)
def test_whatever_a_request_was_the_definitions_of_opentelemetry_read_it(
    found: list[Attempt], path: str, detail: str
) -> None:
    ended = request(attempts=tuple(found), path=path, target=path, detail=detail, status=500)
    count, body = export_body([ended], 10**18, {"service.name": "slb"}, ("slb", "1"))
    resource, read_spans = read(body)
    assert (len(read_spans), resource) == (count, {"service.name": "slb"})
    assert count <= ended.most_spans
    assert len({each.id for each in read_spans}) == count
    assert all(each.began <= each.ended for each in read_spans)


def test_the_body_is_one_resource_with_one_scope() -> None:
    count, body = export_body([request()] * 3, 0, {"service.name": "slb"}, ("slb", "1.2"))
    (resource,) = orjson.loads(body)["resourceSpans"]
    (scope,) = resource["scopeSpans"]
    assert (scope["scope"], len(scope["spans"]), count) == ({"name": "slb", "version": "1.2"}, 27, 27)


@pytest.mark.parametrize(("flags", "sampled"), [("00", False), ("01", True), ("02", False), ("03", True)])
def test_the_last_bit_of_the_flags_says_whether_it_is_sampled(flags: str, sampled: bool) -> None:
    assert is_sampled(b"00-%b-b7ad6b7169203331-%b" % (TRACE, flags.encode())) == sampled


def test_a_later_version_may_say_more_behind_its_flags() -> None:
    place = place_below(b"cc-%b-b7ad6b7169203331-01-more" % TRACE, b"", 5)
    assert (place.trace, place.parent, place.flags) == (TRACE, b"b7ad6b7169203331", 1)
    assert place.traceparent(0) == b"00-%b-%016x-01" % (TRACE, place.span + 1)


def test_ids_have_64_bits_and_are_never_zeros() -> None:
    assert span_id(0) == 1
    longest = place_at_start(TRACE, (1 << 64) - 1)
    assert len(longest.traceparent(11)) == len(longest.traceparent(0)) == 55


def test_a_rate_holds_for_each_second_and_none_is_no_limit() -> None:
    rate = Rate(2)
    allowed = [rate.allows(now) for now in (0.0, 0.1, 0.2, 0.9, 1.5, 1.6, 1.7)]
    assert allowed == [True, True, False, False, True, True, False]
    rate.most = 0
    assert all(rate.allows(5.0) for _ in range(10))
