"""The cases of the W3C's test suite for Trace Context, on a proxy that is no part of the trace: what is valid passes as
it came, and in place of what is not a trace is begun."""

import re
from collections.abc import Sequence

import pytest

from tests.proxy.harness import Origin, Proxy, Request, Wire

TRACE_ID = "12345678901234567890123456789012"
PARENT = "1234567890123456"
VALID = f"00-{TRACE_ID}-{PARENT}-01"
BEGUN = re.compile(r"00-[0-9a-f]{32}-[0-9a-f]{16}-01")
KEY = "abcdefghijklmnopqrstuvwxyz0123456789_-*/"
VALUE = "".join(chr(each) for each in range(0x20, 0x7F) if chr(each) not in ",=")


def members(count: int) -> str:
    return ",".join(f"bar{number:02}={number:02}" for number in range(1, count + 1))


async def sent(wire: Wire, origin: Origin, lines: Sequence[str]) -> Request:
    """What reaches the upstream of a request with these lines, however often it comes."""
    for _ in range(3):
        message = "".join(f"{line}\r\n" for line in ("GET / HTTP/1.1", "Host: h", *lines, ""))
        await wire.send(message.encode("latin-1"))
        assert (await wire.reply()).status == 200
    *before, last = origin.requests[-3:]
    for each in before:
        assert each.all("tracestate") == last.all("tracestate")
    return last


KEPT = {
    "version 00": [VALID],
    "flags that are not defined yet": [VALID[:-2] + "ff"],
    "version cc": ["cc" + VALID[2:]],
    "version cc, with more": ["cc" + VALID[2:] + "-what-the-future-will-be-like"],
    "version cc, with more to come": ["cc" + VALID[2:] + "-"],
    "version 01": ["01" + VALID[2:]],
    "a blank before": [f" {VALID}"],
    "a tab before": [f"\t{VALID}"],
    "a blank behind": [f"{VALID} "],
    "a tab behind": [f"{VALID}\t"],
    "white space around it": [f"\t {VALID} \t"],
}
BEGUN_ANEW = {
    "none": [],
    "empty": [""],
    "nonsense": ["nonsense"],
    "two": [VALID, VALID.replace("12-", "11-")],
    "the same twice": [VALID, VALID],
    "a valid one and one that is not": [VALID, "nonsense"],
    "one that is not and a valid one": ["nonsense", VALID],
    "three": [VALID, VALID, VALID],
    "two in one": [f"{VALID},{VALID}"],
    "version 00, with a dot": [VALID + "."],
    "version 00, with more": [VALID + "-what-the-future-will-be-like"],
    "version 00, with a dash": [VALID + "-"],
    "version cc, with a dot": ["cc" + VALID[2:] + ".what-the-future-will-be-like"],
    "version ff": ["ff" + VALID[2:]],
    "version ff, with more": ["ff" + VALID[2:] + "-more"],
    "a version with a dot before": [".0" + VALID[2:]],
    "a version with a dot behind": ["0." + VALID[2:]],
    "a version of three digits": ["0" + VALID],
    "a version of four digits": ["00" + VALID],
    "a version of one digit": [VALID[1:]],
    "a version in upper case": ["CC" + VALID[2:]],
    "a trace id of zeros": [f"00-{'0' * 32}-{PARENT}-01"],
    "a trace id with a dot before": [f"00-.{TRACE_ID[1:]}-{PARENT}-01"],
    "a trace id with a dot behind": [f"00-{TRACE_ID[:-1]}.-{PARENT}-01"],
    "a trace id that is too long": [f"00-{TRACE_ID}3-{PARENT}-01"],
    "a trace id that is too short": [f"00-{TRACE_ID[:-1]}-{PARENT}-01"],
    "a trace id in upper case": [f"00-{'A' * 32}-{PARENT}-01"],
    "a parent of zeros": [f"00-{TRACE_ID}-{'0' * 16}-01"],
    "a parent with a dot before": [f"00-{TRACE_ID}-.{PARENT[1:]}-01"],
    "a parent with a dot behind": [f"00-{TRACE_ID}-{PARENT[:-1]}.-01"],
    "a parent that is too long": [f"00-{TRACE_ID}-{PARENT}7-01"],
    "a parent that is too short": [f"00-{TRACE_ID}-{PARENT[:-1]}-01"],
    "flags with a dot before": [VALID[:-2] + ".0"],
    "flags with a dot behind": [VALID[:-2] + "0."],
    "flags that are too long": [VALID[:-2] + "001"],
    "flags that are too short": [VALID[:-2] + "1"],
    "no flags": [VALID[:-3]],
    "blanks within": [VALID.replace("-", " -")],
}
STATES_KEPT = {
    "one key": ["foo=1"],
    "two keys": ["foo=1,bar=2"],
    "several headers, in their order": ["foo=1,bar=2", "rojo=1,congo=2", "baz=3"],
    "an empty header": [""],
    "an empty header behind": ["foo=1", ""],
    "an empty header before": ["", "foo=1"],
    "empty members": ["foo=1,,bar=2,"],
    "white space": ["foo=1 \t , \t bar=2, \t baz=3"],
    "white space before commas": ["foo=1\t \t,\t \tbar=2,\t \tbaz=3"],
    "white space around it": ["\t foo=1 \t"],
    "every character": [f"{KEY}={VALUE}"],
    "every character, and a tenant": [f"{KEY}@a-z0-9_-*/={VALUE}"],
    "a tenant that begins with a digit": ["0t@v=1"],
    "32 members": [members(32)],
    "32 members in several headers": [members(10), "a=1", ",".join(f"b{each}=1" for each in range(21))],
    "a key of 256": ["foo=1", "z" * 256 + "=1"],
    "a tenant of 241 and a system of 14": ["foo=1", "t" * 241 + "@" + "v" * 14 + "=1"],
    "a value of 256": ["foo=" + "v" * 256],
}
STATES_DROPPED = {
    "a key twice": ["foo=1,foo=1"],
    "a key with two values": ["foo=1,foo=2"],
    "a key in two headers": ["foo=1", "foo=1"],
    "a key with two values in two headers": ["foo=1", "foo=2"],
    "a blank in a key": ["foo =1"],
    "a key in upper case": ["FOO=1"],
    "a key with a dot": ["foo.bar=1"],
    "a key that begins with a digit": ["0foo=1"],
    "no system": ["foo@=1,bar=2"],
    "no tenant": ["@foo=1,bar=2"],
    "two at signs": ["foo@@bar=1,bar=2"],
    "two systems": ["foo@bar@baz=1,bar=2"],
    "33 members": [members(33)],
    "33 members in two headers": [members(32), "a=1"],
    "a thousand members": [members(1000)],
    "nothing but commas": ["," * 40],
    "a key of 257": ["foo=1", "z" * 257 + "=1"],
    "a tenant of 242": ["foo=1", "t" * 242 + "@v=1"],
    "a system of 15": ["foo=1", "t@" + "v" * 15 + "=1"],
    "a value with an equals sign": ["foo=bar=baz"],
    "a value that is empty": ["foo=,bar=3"],
    "a value of 257": ["foo=" + "v" * 257],
    "a value that is not ASCII": ["foo=\xe9"],
    "no value": ["foo"],
}


@pytest.mark.parametrize("values", KEPT.values(), ids=KEPT)
@pytest.mark.parametrize("name", ["traceparent", "TraceParent", "TRACEPARENT"])
async def test_a_traceparent_that_is_valid_passes_as_it_came(
    proxy: Proxy, origin: Origin, name: str, values: list[str]
) -> None:
    lines = [*(f"{name}:{value}" for value in values), "tracestate: foo=1"]
    for each in (lines, lines[::-1], lines[:-1]):
        seen = await sent(await proxy.connect(), origin, each)
        assert seen.all("traceparent") == [value.strip() for value in values]
        assert seen.all("tracestate") == ["foo=1"] * (len(each) == 2)


@pytest.mark.parametrize("values", BEGUN_ANEW.values(), ids=BEGUN_ANEW)
async def test_a_trace_is_begun_without_a_state_where_none_is_valid(
    proxy: Proxy, origin: Origin, values: list[str]
) -> None:
    lines = [*(f"traceparent: {value}" for value in values), "tracestate: foo=1,bar=2"]
    for each in (lines, lines[::-1], [*lines, "TE: trailers"]):
        seen = await sent(await proxy.connect(), origin, each)
        begun = seen.one("traceparent") or ""
        assert BEGUN.fullmatch(begun)
        assert TRACE_ID not in begun
        assert "0" * 32 not in begun
        assert seen.all("tracestate") == []
    parents = {request.one("traceparent") for request in origin.requests}
    assert len(parents) == len(origin.requests)


@pytest.mark.parametrize("name", ["trace-parent", "trace.parent", "trace_parent"])
async def test_what_is_called_otherwise_is_no_traceparent(proxy: Proxy, origin: Origin, name: str) -> None:
    seen = await sent(await proxy.connect(), origin, [f"{name}: {VALID}", "tracestate: foo=1"])
    assert TRACE_ID not in (seen.one("traceparent") or TRACE_ID)
    assert seen.all("tracestate") == []


@pytest.mark.parametrize("values", STATES_KEPT.values(), ids=STATES_KEPT)
@pytest.mark.parametrize("name", ["tracestate", "TraceState", "TRACESTATE"])
async def test_a_state_that_is_valid_passes_as_it_came(
    proxy: Proxy, origin: Origin, name: str, values: list[str]
) -> None:
    lines = [f"traceparent: {VALID}", *(f"{name}:{value}" for value in values)]
    for each in (lines, lines[1:] + lines[:1]):
        seen = await sent(await proxy.connect(), origin, each)
        assert seen.all("traceparent") == [VALID]
        assert seen.all("tracestate") == [value.strip() for value in values]


@pytest.mark.parametrize("values", STATES_DROPPED.values(), ids=STATES_DROPPED)
async def test_a_state_that_is_not_valid_is_dropped_and_its_trace_kept(
    proxy: Proxy, origin: Origin, values: list[str]
) -> None:
    lines = [f"traceparent: {VALID}", *(f"tracestate: {value}" for value in values)]
    for each in (lines, lines[1:] + lines[:1]):
        seen = await sent(await proxy.connect(), origin, each)
        assert (seen.all("traceparent"), seen.all("tracestate")) == ([VALID], [])
