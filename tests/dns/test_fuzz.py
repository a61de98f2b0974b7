"""Packets of any content: each gets at most one answer, which a client can read, and which is never long.

SLB_FUZZ_SECONDS bounds the time; SLB_FUZZ_SEED chooses other mutations than the usual ones."""

import os
import time
from random import Random

import dns.exception
import dns.flags
import dns.message
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.dns import KNOWN, STRANGER, ZONE, Asked, fleet, member
from tests.support.fuzzing import SECONDS, examples

SEED = int(os.environ.get("SLB_FUZZ_SEED", "20261124"))
pytestmark = pytest.mark.timeout(60 + 10 * SECONDS)

_NAMES = (
    ZONE,
    f"ns.{ZONE}",
    f"_http._tcp.{ZONE}",
    f"ip-10-0-1-1.{ZONE}",
    f"x.y.{ZONE}",
    "example.com",
    ".",
    "X" * 63,
)
_KINDS = ("A", "AAAA", "SRV", "NS", "SOA", "ANY", "TXT", "HTTPS", "AXFR")
SEEDS = [
    dns.message.make_query(name, kind, use_edns=edns, payload=payload).to_wire()
    for name in _NAMES
    for kind in _KINDS
    for edns, payload in ((False, 0), (0, 512), (0, 1232), (0, 65_535), (1, 1232))
]
ASKED = Asked(
    [*fleet(40), member("fd00::1"), member("10.0.0.9", 443, serves="https")], views=(("10.0.0.0/16", "z"),)
)


def judge(packet: bytes) -> None:
    """What holds of the answer to any packet."""
    for peer in (KNOWN, STRANGER):
        answer = ASKED.responder.over_udp(packet, peer)
        if answer is None:
            continue
        assert answer[:2] == packet[:2]
        assert answer[2] & 0x80
        assert not packet[2] & 0x80
        assert len(answer) <= 1232
        assert peer == KNOWN or len(answer) <= 4 * len(packet)
        reply = dns.message.from_wire(answer)
        if reply.question:
            end = 12 + len(answer[12:].partition(b"\0")[0]) + 5
            assert packet[12:end] == answer[12:end], "the question, letter for letter"
    over_tcp = ASKED.responder.over_tcp(packet, STRANGER)
    if over_tcp is not None:
        assert not dns.message.from_wire(over_tcp).flags & dns.flags.TC


def mutated(rng: Random, packet: bytes) -> bytes:
    """`packet` with a few edits: bits, cuts, repeats, insertions, parts of another."""
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(packet) + 1)
        match rng.randrange(6):
            case 0 if packet:
                at = rng.randrange(len(packet))
                packet = packet[:at] + bytes((packet[at] ^ 1 << rng.randrange(8),)) + packet[at + 1 :]
            case 1:
                packet = packet[:at]
            case 2:
                packet = packet[:at] + rng.randbytes(rng.randint(1, 12)) + packet[at:]
            case 3:
                packet = packet[:at] + packet[at // 2 :]
            case 4:
                other = rng.choice(SEEDS)
                packet = packet[:at] + other[rng.randrange(len(other)) :]
            case _:
                packet = (
                    packet[:at] + rng.choice((b"\0", b"\xc0\x0c", b"\xff\xff", b"\x3f", b"\x40")) + packet[at + 1 :]
                )
    return packet[:4096]


def test_no_mutated_query_is_answered_with_anything_but_an_answer() -> None:
    rng, deadline = Random(SEED), time.monotonic() + SECONDS
    for packet in SEEDS:
        judge(packet)
    while time.monotonic() < deadline:
        packet = mutated(rng, rng.choice(SEEDS))
        try:
            judge(packet)
        except (AssertionError, dns.exception.DNSException, Exception) as error:
            raise AssertionError(f"{packet!r}: {error!r}") from error


@settings(max_examples=examples(3000), deadline=None)
@given(st.binary(max_size=600))
def test_no_bytes_at_all_raise(packet: bytes) -> None:
    judge(packet)


@settings(max_examples=examples(3000), deadline=None)
@given(
    st.lists(st.binary(min_size=0, max_size=70), max_size=8),
    st.integers(0, 65_535),
    st.integers(0, 65_535),
    st.binary(max_size=30),
)
def test_no_name_raises(labels: list[bytes], kind: int, class_: int, rest: bytes) -> None:
    name = b"".join(bytes((len(label) & 255,)) + label for label in labels) + b"\0"
    question = name + kind.to_bytes(2, "big") + class_.to_bytes(2, "big")
    for counts in (b"\0\1\0\0\0\0\0\0", b"\0\1\0\0\0\0\0\1"):
        judge(b"\x12\x34\1\0" + counts + question + rest)
