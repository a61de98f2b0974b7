"""What a head states of its message, and which bytes of it are passed on."""

import pytest

from slb.errors import BAD_REQUEST, Refused
from slb.proxy.headers import Forwarding, RequestHead, RequestHeads
from slb.upstreams import fields

OWN_VIA = b"slb-0a1b2c3d"


def head(*lines: str, trusted: bool = False, max_headers: int = 100) -> RequestHead:
    block = "".join(f"{line}\r\n" for line in lines).encode("latin-1") + b"\r\n"
    return RequestHeads(OWN_VIA, max_headers, trusted).parse(block)


def passed_on(*lines: str, trusted: bool = False) -> list[str]:
    return head(*lines, trusted=trusted).fields.decode("latin-1").split("\r\n")[:-1]


def refusal(*lines: str, trusted: bool = False, max_headers: int = 100) -> Refused:
    with pytest.raises(Refused) as caught:
        head(*lines, trusted=trusted, max_headers=max_headers)
    return caught.value


# -- what ends at this hop, and what does not


def test_a_plain_head_is_passed_on_to_the_byte() -> None:
    lines = ["host: h", "X-A:  spaced  ", "X-a: again", "Cookie: a=b", "Content-Length: 3", "X-Empty:", "B: \xe9"]
    assert passed_on(*lines) == [*lines, "X-Forwarded-Host: h"]


@pytest.mark.parametrize(
    "hop",
    [
        "Connection: close",
        "Keep-Alive: timeout=5",
        "Proxy-Connection: keep-alive",
        "TE: trailers",
        "Trailer: X-Sum",
        "Upgrade: h2c",
        "Proxy-Authorization: x",
        "PROXY-AUTHENTICATE: x",
    ],
)
def test_hop_by_hop_fields_of_a_request_end_here(hop: str) -> None:
    assert passed_on("X-A: 1", hop, "X-B: 2") == ["X-A: 1", "X-B: 2"]


def test_every_token_of_every_connection_field_names_a_field_of_this_hop() -> None:
    lines = ["Connection: X-One ,\tx-two", "X-ONE: 1", "X-Two: 2", "X-Three: 3", "connection: x-three", "X-Four: 4"]
    assert passed_on(*lines) == ["X-Four: 4"]


@pytest.mark.parametrize(
    "kept",
    [
        "Host: h",
        "Content-Length: 5",
        "Content-Type: text/plain",
        "Content-Encoding: gzip",
        "Authorization: x",
        "Cookie: a=b",
        "Cache-Control: no-store",
        "Via: 1.1 other",
        "X-Request-Id: r1",
    ],
)
def test_connection_cannot_name_away_what_makes_the_message(kept: str) -> None:
    name = kept.partition(":")[0]
    assert kept in passed_on(f"Connection: {name.lower()}, close", kept)


def test_connection_cannot_name_away_what_a_trusted_proxy_forwards() -> None:
    names = ["X-Forwarded-For", "X-Forwarded-Proto", "X-Forwarded-Host", "Forwarded"]
    found = head(f"Connection: {', '.join(names)}", *(f"{name}: v" for name in names), trusted=True)
    assert found.forwarding == Forwarding(b"v", True, True, True)
    assert found.fields == b"X-Forwarded-Proto: v\r\nX-Forwarded-Host: v\r\nForwarded: v\r\n"


def test_connection_tokens_decide_whether_the_connection_goes_on() -> None:
    assert [head(f"Connection: {each}").keep_alive for each in ("Close", "keep-alive, close")] == [False, False]
    assert head("Connection: a, Keep-Alive").keep_alive is True
    assert [head(each).keep_alive for each in ("X: y", "Connection: a")] == [None, None]


def test_an_upgrade_that_is_asked_for_is_read_to_its_last_field() -> None:
    assert passed_on("Connection: Upgrade", "Upgrade: websocket", "X-Last: 1") == ["X-Last: 1"]


# -- where it comes from


FORWARDED = ["X-Forwarded-For: 10.1.1.1", "X-Forwarded-Proto: https", "X-Forwarded-Port: 1", "X-Real-IP: 10.1.1.1"]


def test_what_an_untrusted_peer_sends_about_the_client_is_dropped() -> None:
    found = head("Host: h", *FORWARDED, "X-Forwarded-Host: evil", "Forwarded: for=10.1.1.1")
    assert found.fields == b"Host: h\r\nX-Forwarded-Host: h\r\n"
    assert found.forwarding is None


def test_what_a_trusted_peer_sends_about_the_client_is_kept_and_its_chain_handed_back() -> None:
    found = head("Host: h", *FORWARDED, "x-forwarded-for: 10.2.2.2", "X-Forwarded-Host: site", trusted=True)
    assert found.forwarding == Forwarding(b"10.1.1.1, 10.2.2.2", has_proto=True, has_host=True, has_forwarded=False)
    assert found.fields.decode().split("\r\n")[:-1] == [
        "Host: h",
        "X-Forwarded-Proto: https",
        "X-Forwarded-Port: 1",
        "X-Real-IP: 10.1.1.1",
        "X-Forwarded-Host: site",
    ]


def test_a_trusted_peer_that_names_no_host_gets_it_added() -> None:
    assert passed_on("Host: h", "X-Forwarded-For: 10.1.1.1", trusted=True) == ["Host: h", "X-Forwarded-Host: h"]


@pytest.mark.parametrize("trusted", [True, False])
@pytest.mark.parametrize(
    "name",
    [
        "X_Forwarded_For",
        "x-forwarded_proto",
        "Content_Length",
        "transfer_encoding",
        "X_Real_IP",
        "X_FORWARDED_ANYTHING",
        "X_Request_Id",
        "X-Request_Id",
        "x_request-id",
        "X_Request_Timeout",
        "X_Slb_Timing",
        "Proxy_Authorization",
        "Proxy_Connection",
        "Keep_Alive",
        "HTTP2_Settings",
        "Content.Length",
        "X!Forwarded!For",
        "X~Real~IP",
        "x.forwarded_proto",
        "Transfer'Encoding",
    ],
)
def test_a_name_cannot_shadow_one_of_https_own_by_what_stands_for_its_hyphens(name: str, trusted: bool) -> None:
    assert refusal(f"{name}: 1", trusted=trusted).reason is BAD_REQUEST


def test_other_names_with_such_characters_are_the_applications_business() -> None:
    for line in (
        "X.Other: 1",
        "Api.Version: 1",
        "#a|b`c: 1",
        "X.Forward: 1",
        "Content.Lengths: 1",
        "X_Other: 1",
        "X_Request_Ids: 1",
        "X_Forward: 1",
        "Xforwarded_for: 1",
    ):
        assert passed_on(line) == [line]


@pytest.mark.parametrize("character", [b"%c" % each for each in b"!#$%&'*+.^_`|~"])
@pytest.mark.parametrize("name", sorted(fields._KINDS))
def test_no_name_that_slb_reads_has_a_shadow_that_passes(name: bytes, character: bytes) -> None:
    shadow = name.replace(b"-", character)
    assert shadow == name or fields.FIELDS[shadow + b": 1"][0] == fields.SHADOW


@pytest.mark.parametrize("value", ["r1", "!~", "x" * 128, "a:b/c-d_e"])
def test_a_request_id_that_can_be_shown_is_kept(value: str) -> None:
    found = head(f"X-Request-ID: {value}")
    assert found.request_id == value.encode()
    assert found.fields == f"X-Request-ID: {value}\r\n".encode()


@pytest.mark.parametrize("value", ["", "a b", "x" * 129, "\xe9", "a\tb"])
def test_a_request_id_that_cannot_be_shown_is_dropped(value: str) -> None:
    found = head(f"X-Request-Id: {value}", "X-A: 1")
    assert (found.request_id, found.fields) == (b"", b"X-A: 1\r\n")


@pytest.mark.parametrize("others", [["a"], ["b"], ["b c"], ["a", "b"]])
def test_of_several_request_ids_the_first_usable_one_is_passed_on_alone(others: list[str]) -> None:
    found = head("X-Request-Id: not usable", "X-Request-Id: a", *(f"X-Request-Id: {each}" for each in others))
    assert (found.request_id, found.fields) == (b"a", b"X-Request-Id: a\r\n")


@pytest.mark.parametrize(
    ("via", "looped"),
    [
        (["Via: 1.1 slb-0a1b2c3d"], True),
        (["Via: 1.1 other, 1.0 slb-0a1b2c3d"], True),
        (["Via: 1.1 slb-0a1b2c3d", "Via: 1.1 other"], True),
        (["Via: 1.1 slb-ffffffff"], False),
        (["Via: 1.1 slb"], False),
        ([], False),
    ],
)
def test_a_request_that_names_this_instance_in_via_has_looped(via: list[str], looped: bool) -> None:
    assert head(*via, "X: y").looped is looped
    assert passed_on(*via) == via


TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def test_a_trace_that_was_begun_is_passed_on() -> None:
    assert (head(f"traceparent: {TRACE}").trace, passed_on(f"traceparent: {TRACE}")) == (
        TRACE.encode(),
        [f"traceparent: {TRACE}"],
    )


@pytest.mark.parametrize(
    "value", ["", "x", TRACE[:-1], TRACE.upper(), "ff" + TRACE[2:], "00-" + "0" * 32 + TRACE[35:]]
)
def test_a_trace_that_cannot_be_read_is_dropped(value: str) -> None:
    found = head(f"traceparent: {value}", "A: b")
    assert (found.trace, found.fields) == (b"", b"A: b\r\n")


def test_only_a_trusted_peer_sets_the_time_a_request_has() -> None:
    assert head("X-Request-Timeout: 250ms").timeout == 0.0
    found = head("X-Request-Timeout: 250ms", "A: b", trusted=True)
    assert (found.timeout, found.fields) == (0.25, b"A: b\r\n")
    assert refusal("X-Request-Timeout: soon", trusted=True).reason is BAD_REQUEST


@pytest.mark.parametrize(
    ("lines", "upgrade"),
    [
        (["Connection: Upgrade", "Upgrade: websocket"], b"websocket"),
        (["Upgrade: websocket"], b""),
        (["Connection: Upgrade"], b""),
        (["Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAA"], b""),
        (["Connection: Upgrade", "Upgrade: websocket", "Content-Length: 5"], b""),
        (["Connection: Upgrade", "Upgrade: a, b"], b""),
    ],
)
def test_an_upgrade_is_a_wish_for_this_hop_to_make_again(lines: list[str], upgrade: bytes) -> None:
    found = head(*lines)
    assert found.upgrade == upgrade
    assert b"pgrade" not in found.fields
    assert b"HTTP2" not in found.fields
